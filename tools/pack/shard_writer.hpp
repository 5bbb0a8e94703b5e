#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <tools/pack/sample_encoder.hpp>
#include <tools/pack/shard_name.hpp>

namespace libtrain::pack {

/// A labelled image on its way to a shard.
struct LabelledSample {
  const EncodedSample& image;
  std::uint64_t number = 0;  ///< among the samples of all shards, from 0
  std::int64_t label = 0;
  std::string_view class_name = {};
  std::string_view path = {};  ///< of the image file, below the folder that is packed
};

/// Writes one shard. The file appears, complete, with finish(); without that call nothing is left. Errors are
/// EnvironmentError that name the file. Used by one thread at a time.
class ShardWriter {
 public:
  virtual ~ShardWriter() = default;

  virtual void add(const LabelledSample& sample) = 0;

  /// The last call.
  virtual void finish() = 0;

  /// Of the file so far, after finish() too.
  virtual std::uint64_t bytes() const = 0;
};

/// A shard of that kind in an existing local folder.
std::unique_ptr<ShardWriter> create_shard(ShardKind kind, const std::string& path);

/// What a sample takes of such a shard, about, when its image has `image_bytes` bytes.
std::uint64_t stored_bytes(ShardKind kind, std::uint64_t image_bytes);

}  // namespace libtrain::pack
