#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/sync/gradient_synchronizer.hpp>
#include <libtrain/sync/synchronization_statistics.hpp>
#include <libtrain/train/context.hpp>

namespace libtrain {

/// Adds an object with the cost of synchronization to the run's `summary` event, and logs it in one line on rank 0. All
/// ranks must call it after training; a run with several synchronizers gives each a `name`. Its members:
///
/// rounds                                number of rounds of the synchronizer
/// exposed_communication_ms_per_step     time in wait() per round, on the rank that waited longest
/// overlap_share                         share of all ranks' communication that ran during backward(), 0 to 1
/// bucket_bytes_per_s                    by bucket, on the rank that waited least for its peers in it
/// slowest_rank                          the rank that the others wait for; null if there is no such rank
void summarize(Context& context, const GradientSynchronizer& synchronizer, std::string_view name = "synchronization");

namespace detail {

struct SynchronizationSummary {
  std::int64_t rounds = 0;
  double ms_per_step = 0;  ///< time of the whole run per step, including setup and evaluation
  double exposed_communication_ms_per_step = 0;
  double overlap_share = 1;
  std::vector<double> bucket_bytes_per_s = {};
  std::optional<int> slowest_rank = {};
  double seconds_waiting_for_slowest = 0;  ///< the mean over the other ranks
};

/// Element r of `ranks`, which is not empty, has the counts of rank r in a run that took `seconds`.
///
/// The last rank to reach the buckets of a round does not wait, and all its peers wait for it: if one rank is slower
/// than the others, it waits least. It is reported if the others waited longer by more than 2% of the run.
SynchronizationSummary summary_of(const std::vector<SynchronizationStatistics>& ranks, double seconds);

/// "1.2 ms of the run's 45.0 ms per step were exposed communication (97% overlapped); rank 3 is the slowest: ..."
std::string to_text(const SynchronizationSummary& summary);

}  // namespace detail

}  // namespace libtrain
