#pragma once

#include <cstdint>
#include <string>

#include <libtrain/comm/work.hpp>

namespace libtrain {

/// One collective on this rank.
struct CollectiveRecord {
  enum class State { queued, running, done, failed };

  std::uint64_t sequence = 0;  ///< the same on every rank
  std::string what = {};       ///< "all_reduce of 10 float32 (sum)", followed by its label if it has one
  State state = State::queued;
  WorkTimes times = {};  ///< the clock's epoch for a time that has not been reached
};

/// "queued", "running", "done" or "failed".
const char* to_string(CollectiveRecord::State state);

}  // namespace libtrain
