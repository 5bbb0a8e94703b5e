#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <libtrain/data/read_ahead.hpp>
#include <libtrain/data/sample_origin.hpp>

namespace libtrain::data {

/// An image file in memory, as it was stored, and its class.
struct EncodedImage {
  std::string bytes = {};
  std::int64_t label = 0;
};

/// Labelled image files that can be read in any order, whatever they are stored in. Immutable: any thread may call it,
/// several at once.
class ImageSource {
 public:
  virtual ~ImageSource() = default;

  /// How messages name it: the folder's path or URI without anything secret.
  virtual const std::string& name() const = 0;

  virtual std::uint64_t size() const = 0;

  /// Makes `image` the image number `index`, in the memory that it has where that suffices; nothing is decoded. Counts
  /// what it reads by count_bytes_read(). Throws UsageError unless `index` < size(), EnvironmentError that names file
  /// and offset where the image is damaged or cannot be read.
  virtual void read(std::uint64_t index, EncodedImage& image) const = 0;

  /// Where that image is stored. Throws UsageError unless `index` < size().
  virtual SampleOrigin origin(std::uint64_t index) const = 0;

  /// The names of the classes by label; empty where they are not known.
  virtual const std::vector<std::string>& classes() const = 0;

  /// How many images in a row lie in the same file, file by file, adding up to size(); empty where each is a file of
  /// its own, so that reading them in any order costs the same.
  virtual std::vector<std::uint64_t> blocks() const = 0;

  /// Begins to fetch images before they are read; nothing where that is of no use, and then `order` is not called.
  /// Other threads may read meanwhile. The source must outlive the result.
  virtual std::unique_ptr<ReadAhead> read_ahead(const ReadingIndices& /*order*/) const { return nullptr; }
};

}  // namespace libtrain::data
