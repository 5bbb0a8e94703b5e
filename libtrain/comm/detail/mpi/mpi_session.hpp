#pragma once

#include <atomic>
#include <memory>

#include <libtrain/base/clock.hpp>

namespace libtrain::detail {

/// MPI, initialised with MPI_THREAD_MULTIPLE by the first session unless the program did it before, and finalised when
/// the last session ends if libtrain had initialised it.
class MpiSession {
 public:
  /// The running session or a new one. Throws EnvironmentError if MPI has been finalised or lacks MPI_THREAD_MULTIPLE,
  /// which communication threads need. MPI_Init waits for all ranks and cannot be given up: if it has not returned at
  /// `deadline`, the process ends with ExitCode::communication. Only one thread at a time may call it.
  static std::shared_ptr<MpiSession> acquire(const Deadline& deadline);

  /// MPI_Finalize waits for all ranks, so it is not called after `abandon` and during stack unwinding: the launcher
  /// ends a job if a rank exits without it.
  ~MpiSession();

  /// Records that a peer may be lost. Any thread may call it.
  void abandon() { abandoned_ = true; }

  MpiSession(const MpiSession&) = delete;  // one owner of MPI_Finalize
  MpiSession& operator=(const MpiSession&) = delete;

 private:
  explicit MpiSession(const Deadline& deadline);

  bool finalizes_ = false;
  std::atomic<bool> abandoned_ = false;
};

}  // namespace libtrain::detail
