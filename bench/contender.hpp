#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <libtrain/comm/communicator.hpp>

namespace libtrain::bench {

enum class CalledBy { all_ranks, rank_0_alone };

/// One way of combining the ranks' buffers, timed in turns with others. Where rank 0 calls it alone, the other ranks
/// sleep meanwhile.
struct Contender {
  std::string implementation;
  std::string backend;
  CalledBy called_by = CalledBy::all_ranks;
  std::function<void()> call;                 ///< what is timed
  std::function<void()> clear;                ///< puts in values that any number of calls leaves as they are
  std::function<std::int64_t()> count_wrong;  ///< elements of this rank that one call on known values gets wrong
};

struct Schedule {
  std::int64_t iterations = 100;  ///< timed calls of each contender
  std::int64_t warmup = 5;        ///< untimed calls of each contender before
  double budget_s = 5;            ///< longer work is cut down, but not below 15 iterations
};

struct Measurement {
  std::vector<double> seconds;  ///< of the slowest rank, one entry a timed call
  std::int64_t wrong = 0;       ///< over all ranks, before and after the timed calls
};

/// The measurements of each contender, in their order, on every rank. All ranks must call it with the same contenders.
///
/// Contenders take turns of a few calls, in alternating order, between barriers that are not timed. The first call of a
/// turn is not timed either: a contender's buffers are in the cache where its own calls leave them there.
std::vector<Measurement> measure_in_turns(Communicator& communicator, const std::vector<Contender>& contenders,
                                          const Schedule& schedule);

}  // namespace libtrain::bench
