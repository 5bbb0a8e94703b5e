#pragma once

#include <string>

#include <libtrain/base/text.hpp>
#include <libtrain/comm/communicator.hpp>

namespace libtrain::detail {

/// Throws `Failure` on all ranks where any of them has a `problem` (empty for none), so that nobody waits for a rank
/// that has given up. `step` says what was being done.
template <typename Failure>
void throw_together(Communicator& control, const std::string& step, const std::string& problem,
                    const CallOptions& options = {}) {
  const auto problems = control.all_gather_bytes(problem, options);
  for (std::size_t rank = 0; rank < problems.size(); ++rank) {
    if (problems[rank].empty()) continue;
    throw Failure(text(step, " failed on rank ", rank, ": ", problems[rank]), ErrorScope::all_ranks);
  }
}

}  // namespace libtrain::detail
