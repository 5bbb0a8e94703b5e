#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace libtrain::pack {

struct ShardPlanOptions {
  std::uint64_t shard_bytes = std::uint64_t{256} << 20;  ///< approximate size of a shard
  std::uint64_t shards = 0;                              ///< number of shards; 0: by `shard_bytes`
};

/// Divides consecutive samples into shards of nearly equal bytes, and returns the number of samples of each shard.
///
/// `bytes` are the sizes of the samples in the order in which they are stored. If `shards` is 0, the number of shards
/// is the total size divided by `shard_bytes`, rounded up, but at most one per sample. A shard ends where the bytes up
/// to its end are closest to its share of the total, and has at least one sample. Any thread may call it. Throws
/// UsageError if both options are 0, and for more shards than samples.
std::vector<std::uint64_t> plan_shards(std::span<const std::uint64_t> bytes, const ShardPlanOptions& options);

}  // namespace libtrain::pack
