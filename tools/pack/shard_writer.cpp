#include <tools/pack/shard_writer.hpp>

#include <tools/pack/tar_shard_writer.hpp>
#include <tools/pack/tf_record_shard_writer.hpp>

namespace libtrain::pack {

namespace {

constexpr std::uint64_t kTarBlock = 512;
constexpr std::uint64_t kFeatureBytes = 300;  // names and values of all features but the image, and the record's frame

}  // namespace

std::unique_ptr<ShardWriter> create_shard(ShardKind kind, const std::string& path) {
  if (kind == ShardKind::tar) return std::make_unique<TarShardWriter>(path);
  return std::make_unique<TfRecordShardWriter>(path);
}

std::uint64_t stored_bytes(ShardKind kind, std::uint64_t image_bytes) {
  if (kind == ShardKind::tf_record) return image_bytes + kFeatureBytes;
  // Two headers, the label and the image, in whole blocks.
  return (image_bytes + kTarBlock - 1) / kTarBlock * kTarBlock + 3 * kTarBlock;
}

}  // namespace libtrain::pack
