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

/// Adds to the run's `summary` event an object with what synchronising has cost, and says so in one line on rank 0. All
/// ranks must call it, when training has ended; a run with several synchronizers gives each a `name`. Its members:
///
/// rounds                                the synchronizer's
/// exposed_communication_ms_per_step     what wait() waited in a round, on the rank that waited most
/// overlap_share                         of all ranks' communication: what ran beside backward(), 0 to 1
/// bucket_bytes_per_s                    by bucket, of the rank that waited least for its peers in it
/// slowest_rank                          the rank that the others wait for; null where they wait for none in particular
void summarize(Context& context, const GradientSynchronizer& synchronizer, std::string_view name = "synchronization");

namespace detail {

struct SynchronizationSummary {
  std::int64_t rounds = 0;
  double ms_per_step = 0;  ///< of the whole run, setting up and evaluation included
  double exposed_communication_ms_per_step = 0;
  double overlap_share = 1;
  std::vector<double> bucket_bytes_per_s = {};
  std::optional<int> slowest_rank = {};
  double seconds_waiting_for_slowest = 0;  ///< the mean over the other ranks
};

/// Element r of `ranks`, of which there is at least one, is what rank r counted in a run that took `seconds`.
///
/// The rank that comes last to the buckets of a round waits for none of its peers, and all of them wait for it: where
/// one rank is slower than the others, it is the one that waits least. It is named if the others have waited longer by
/// more than 2% of the run.
SynchronizationSummary summary_of(const std::vector<SynchronizationStatistics>& ranks, double seconds);

/// "1.2 ms of the run's 45.0 ms a step were not hidden (97% overlapped); rank 3 is the slowest: ..."
std::string to_text(const SynchronizationSummary& summary);

}  // namespace detail

}  // namespace libtrain
