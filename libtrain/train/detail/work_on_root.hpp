#pragma once

#include <functional>
#include <string>

#include <libtrain/comm/communicator.hpp>

namespace libtrain::detail {

/// Work that may take longer than a collective in which the other ranks would wait for rank 0.
struct WorkOnRoot {
  std::string what = {};                     ///< for messages: "Writing a checkpoint"
  std::function<void()> run = {};            ///< on rank 0, on a thread of its own
  std::function<void()> while_waiting = {};  ///< on the other ranks, five times a second; may throw
  std::function<void()> give_up = {};        ///< on every rank that fails meanwhile: must end a `run` that waits
};

/// Runs the work on rank 0 while the other ranks wait without a deadline of their own: they notice a loss of rank 0,
/// and it theirs, within the communicator's. Throws the work's error on all ranks. All ranks must call it.
void run_on_root(Communicator& communicator, const WorkOnRoot& work);

}  // namespace libtrain::detail
