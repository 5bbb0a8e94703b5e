#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <bench/training_pair.hpp>
#include <libtrain/comm/communicator.hpp>

namespace libtrain::bench {

/// The seconds of `step` between two barriers, on the slowest rank. All ranks must call it. Work that `step` leaves
/// queued on a GPU does not count.
double time_step(Communicator& communicator, const std::function<void()>& step);

/// Seconds of steps of each rank alone (all ranks at the same time) and of synchronised ones. Element k of both was
/// timed one after the other.
struct StepTimes {
  std::vector<double> local_s = {};
  std::vector<double> synchronized_s = {};

  /// The median of synchronized / local over the pairs.
  double median_ratio() const;
};

/// Which of a pair's first two steps comes first. The order is swapped with every further step: the one that comes
/// second finds other caches.
enum class First { local, synchronized };

/// `count` times of each kind. All ranks must call it.
///
/// Each is the mean over `steps_at_once` steps, of which only the last is waited for: on a GPU the host queues a step
/// while the one before it runs, as in training.
StepTimes time_steps(TrainingPair& pair, Communicator& communicator, std::int64_t count, std::int64_t steps_at_once = 1,
                     First first = First::local);

}  // namespace libtrain::bench
