#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <bench/training_pair.hpp>
#include <libtrain/comm/communicator.hpp>

namespace libtrain::bench {

/// The seconds of `step` between two barriers, on the slowest rank. All ranks must call it.
double time_step(Communicator& communicator, const std::function<void()>& step);

/// Seconds of steps of each rank alone (all ranks at the same time) and of synchronised ones. Element k of both was
/// timed one after the other.
struct StepTimes {
  std::vector<double> local_s = {};
  std::vector<double> synchronized_s = {};

  /// The median of synchronized / local over the pairs.
  double median_ratio() const;
};

/// Which of a pair's first two steps comes first. The order is swapped with every further step: whoever comes second
/// finds other caches.
enum class First { local, synchronized };

/// `count` steps of each kind. All ranks must call it.
StepTimes time_steps(TrainingPair& pair, Communicator& communicator, std::int64_t count, First first = First::local);

}  // namespace libtrain::bench
