#pragma once

#include <cstdint>
#include <vector>

#include <bench/training_pair.hpp>
#include <libtrain/comm/communicator.hpp>

namespace libtrain::bench {

/// The first ten steps of networks, optimizers and synchronizers that have just been made.
struct FreshStarts {
  static constexpr std::int64_t steps = 10;

  std::vector<double> local_s = {};         ///< of each step: the median over the starts
  std::vector<double> synchronized_s = {};  ///< the same
  double allocation_s = 0;                  ///< to allocate memory for all buckets, and touch it

  /// By how much the first step is slower than the tenth, beyond what it is without synchronising.
  double extra_s() const {
    return (synchronized_s.front() - synchronized_s.back()) - (local_s.front() - local_s.back());
  }
};

/// Makes `starts` pairs, one after the other, and times the first steps of each. The process should have trained such a
/// pair before: what it does only once in its life (choosing kernels, starting threads) would count for the one that
/// comes first. All ranks must call it.
FreshStarts time_fresh_starts(const TrainingPairOptions& options, Communicator& communicator, std::int64_t starts);

}  // namespace libtrain::bench
