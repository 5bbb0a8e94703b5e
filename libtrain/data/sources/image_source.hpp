#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <libtrain/data/read_ahead.hpp>
#include <libtrain/data/sample_origin.hpp>

namespace libtrain::data {

/// An encoded image file in memory and its class.
struct EncodedImage {
  std::string bytes = {};
  std::int64_t label = 0;
};

/// Labelled image files in any storage format, with random access. Immutable: any thread may call it, several at once.
class ImageSource {
 public:
  virtual ~ImageSource() = default;

  /// The folder's path or URI for messages, without anything secret.
  virtual const std::string& name() const = 0;

  virtual std::uint64_t size() const = 0;

  /// Reads image number `index` into `image`, whose memory is reused, without decoding it. Reports the bytes to
  /// count_bytes_read(). Throws UsageError unless `index` < size(), EnvironmentError that names file and offset if the
  /// image is damaged or cannot be read.
  virtual void read(std::uint64_t index, EncodedImage& image) const = 0;

  /// The place where that image is stored. Throws UsageError unless `index` < size().
  virtual SampleOrigin origin(std::uint64_t index) const = 0;

  /// The names of the classes by label; empty if they are not known.
  virtual const std::vector<std::string>& classes() const = 0;

  /// The numbers of consecutive images in the same file, file by file, which add up to size(); empty if each image has
  /// its own file, so that every order of reading costs the same.
  virtual std::vector<std::uint64_t> blocks() const = 0;

  /// Begins to fetch images before they are read. Returns nullptr, without a call of `order`, if that has no benefit.
  /// Other threads may read meanwhile. The source must outlive the result.
  virtual std::unique_ptr<ReadAhead> read_ahead(const ReadingIndices& /*order*/) const { return nullptr; }
};

}  // namespace libtrain::data
