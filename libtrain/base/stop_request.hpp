#pragma once

#include <string>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>

namespace libtrain {

/// Whether this process was asked to stop: by SIGTERM, by SIGUSR1, or by a deadline. While an object of this class
/// exists, the first of these signals only records the request, and the program stops by itself, after a checkpoint. A
/// second signal of either kind ends the process at once, as if there were no handler: send it to the ranks or to their
/// launcher, not to both.
///
/// SIGINT is left alone, and ends the process: a terminal sends it to all processes of a job, and the user who presses
/// Ctrl-C wants the terminal back. The last checkpoint is complete in any case.
///
/// The handlers belong to the process: objects of several threads, such as ranks in tests, see the same signals. The
/// handlers are installed with the first object and removed with the last one; the request is then forgotten, and
/// handlers that were there before are restored, unless others have replaced these. Interrupted system calls are
/// restarted. An MPI library may install handlers when it starts: connect the ranks first. Ranks that stop must agree
/// on the step; that is up to the caller. Any thread may call.
class StopRequest {
 public:
  /// `deadline_name` is the reason once the deadline has passed: the option by which the user has set it.
  explicit StopRequest(Deadline deadline = Deadline::never(), std::string deadline_name = "--max-minutes");

  StopRequest(const StopRequest&) = delete;  // counted by the handlers
  StopRequest& operator=(const StopRequest&) = delete;

  ~StopRequest();

  /// Takes some nanoseconds, 30 with a deadline.
  bool is_requested() const noexcept;

  /// "SIGTERM", "SIGUSR1" or the name of the deadline; a signal comes first. Empty if no stop is requested.
  std::string reason() const;

 private:
  Deadline deadline_;
  std::string deadline_name_;
};

/// The run was asked to stop, and all ranks have stopped after the same step, with a checkpoint to continue from. `run`
/// ends the run as usual, and returns this exit code instead of 0.
class StoppedOnRequest : public Error {
 public:
  explicit StoppedOnRequest(const std::string& message) : Error(ExitCode::stopped, message, ErrorScope::all_ranks) {}
};

}  // namespace libtrain
