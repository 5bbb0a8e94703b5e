#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <tools/pack/sample_encoder.hpp>
#include <tools/pack/shard_name.hpp>

namespace libtrain::pack {

/// A labelled image to be written to a shard.
struct LabelledSample {
  const EncodedSample& image;
  std::uint64_t number = 0;  ///< counted over all shards, from 0
  std::int64_t label = 0;
  std::string_view class_name = {};
  std::string_view path = {};  ///< path of the image file, relative to the packed folder
};

/// Writes one shard. The complete file appears with finish(); without that call there is none. Throws EnvironmentError
/// that names the file. Used by one thread at a time.
class ShardWriter {
 public:
  virtual ~ShardWriter() = default;

  virtual void add(const LabelledSample& sample) = 0;

  /// The last call.
  virtual void finish() = 0;

  /// The size of the file so far, also after finish().
  virtual std::uint64_t bytes() const = 0;
};

/// Creates a shard of that kind in an existing local folder.
std::unique_ptr<ShardWriter> create_shard(ShardKind kind, const std::string& path);

/// Creates a tar archive of images alone, whose members have their paths, in an existing local folder: what
/// open_named_images() reads.
std::unique_ptr<ShardWriter> create_image_archive(const std::string& path);

/// The approximate size of a sample in a shard of that kind, if its image has `image_bytes` bytes.
std::uint64_t stored_bytes(ShardKind kind, std::uint64_t image_bytes);

}  // namespace libtrain::pack
