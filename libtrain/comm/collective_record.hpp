#pragma once

#include <cstdint>
#include <string>

#include <libtrain/comm/work.hpp>

namespace libtrain {

/// One collective as this rank saw it.
struct CollectiveRecord {
  enum class State { queued, running, done, failed };

  std::uint64_t sequence = 0;  ///< the same on every rank
  std::string what = {};       ///< "all_reduce of 10 float32 (sum)", and what it was for where that was said
  State state = State::queued;
  WorkTimes times = {};  ///< as far as they have come: the clock's epoch otherwise
};

/// "queued", "running", "done" or "failed".
const char* to_string(CollectiveRecord::State state);

}  // namespace libtrain
