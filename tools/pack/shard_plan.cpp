#include <tools/pack/shard_plan.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::pack {

namespace {

std::uint64_t count_shards(std::uint64_t total_bytes, std::uint64_t samples, const ShardPlanOptions& options) {
  if (options.shards > samples) {
    throw UsageError(text("--shards is ", options.shards, ", but there are only ", samples,
                          " images. Set --shards to at most one per image."));
  }
  if (options.shards > 0) return options.shards;
  if (options.shard_bytes == 0) throw UsageError("--shard-bytes is 0. Set a positive size.");
  const std::uint64_t rounded_up = total_bytes % options.shard_bytes == 0 ? 0 : 1;
  return std::min(std::max<std::uint64_t>(total_bytes / options.shard_bytes + rounded_up, 1), samples);
}

// `total` * `part` / `parts`, rounded down. The product itself might overflow.
std::uint64_t share_of(std::uint64_t total, std::uint64_t part, std::uint64_t parts) {
  return total / parts * part + total % parts * part / parts;
}

}  // namespace

std::vector<std::uint64_t> plan_shards(std::span<const std::uint64_t> bytes, const ShardPlanOptions& options) {
  const std::uint64_t total = std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
  const std::uint64_t shards = count_shards(total, bytes.size(), options);
  std::vector<std::uint64_t> samples;
  samples.reserve(static_cast<std::size_t>(shards));
  std::uint64_t planned_bytes = 0;
  std::size_t next = 0;
  for (std::uint64_t shard = 0; shard < shards; ++shard) {
    const std::uint64_t wanted_bytes = share_of(total, shard + 1, shards);
    const auto shards_after = static_cast<std::size_t>(shards - shard - 1);
    const std::size_t last = bytes.size() - shards_after;  // one sample remains for each of those
    const std::size_t begin = next;
    // A sample whose middle is after the wanted end belongs to the next shard.
    while (next < last && (next == begin || planned_bytes + (bytes[next] + 1) / 2 <= wanted_bytes)) {
      planned_bytes += bytes[next++];
    }
    samples.push_back(next - begin);
  }
  return samples;
}

}  // namespace libtrain::pack
