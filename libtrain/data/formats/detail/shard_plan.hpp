#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace libtrain::data::detail {

struct ShardPlanOptions {
  std::uint64_t shard_bytes = std::uint64_t{256} << 20;  ///< of a shard, about
  std::uint64_t shards = 0;                              ///< how many there are; 0: as many as `shard_bytes` needs
};

/// Cuts samples in a row into shards of nearly equal bytes, and returns how many samples each shard has.
///
/// `bytes` are the sizes of the samples in the order in which they are stored. Where `shards` is 0, there are as many
/// as all bytes over `shard_bytes`, rounded up, but no more than samples. A shard ends where the bytes up to its end
/// come nearest to its share of them, and has at least one sample. A pure function: any thread may call it. Throws
/// UsageError where `shard_bytes` is 0, and for more shards than samples.
std::vector<std::uint64_t> plan_shards(std::span<const std::uint64_t> bytes, const ShardPlanOptions& options);

}  // namespace libtrain::data::detail
