#include <libtrain/sync/detail/sample_weights.hpp>

#include <algorithm>

namespace libtrain::detail {

SampleWeight SampleWeights::exchange(std::int64_t samples) {
  const CallPurpose purpose{communicator_, "set_samples() or join()"};
  const std::int64_t ranks = communicator_.world_size();
  if (!counts_.defined()) counts_ = communicator_.allocate_on_host(ranks, at::kLong);
  auto* counts = counts_.mutable_data_ptr<std::int64_t>();
  counts[communicator_.rank()] = samples;
  communicator_.all_gather(counts_.narrow(0, communicator_.rank(), 1), counts_).wait();

  SampleWeight result{.source = -1, .all_joined = true};
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    result.is_refused |= counts[rank] == kRefused;
    result.all_joined &= counts[rank] == kJoined;
    if (counts[rank] <= 0) continue;
    result.total += counts[rank];
    if (result.source < 0) result.source = static_cast<int>(rank);
  }
  result.is_empty = result.total == 0;
  samples = std::max<std::int64_t>(samples, 0);
  if (result.source < 0) result.source = 0;
  // Compared as integers: the usual weight must be exactly 1.
  const bool fair = samples * ranks == result.total;
  if (!fair || result.total == 0) {
    result.weight = samples == 0
                        ? 0
                        : static_cast<double>(samples) * static_cast<double>(ranks) / static_cast<double>(result.total);
  }
  return result;
}

}  // namespace libtrain::detail
