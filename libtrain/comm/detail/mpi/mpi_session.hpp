#pragma once

#include <atomic>
#include <memory>

namespace libtrain::detail {

/// MPI, initialised with MPI_THREAD_MULTIPLE by the first session unless the program did it before, and finalised when
/// the last session ends if libtrain had initialised it.
class MpiSession {
 public:
  /// The running session or a new one. Throws EnvironmentError where MPI has been finalised or lacks
  /// MPI_THREAD_MULTIPLE, which communication threads need. Call it from one thread at a time.
  static std::shared_ptr<MpiSession> acquire();

  /// MPI_Finalize waits for all ranks, so it is left out after `abandon` and while an exception unwinds: the launcher
  /// ends a job of which a rank leaves without it.
  ~MpiSession();

  /// Says that a peer may be lost. Any thread.
  void abandon() { abandoned_ = true; }

  MpiSession(const MpiSession&) = delete;  // one owner of MPI_Finalize
  MpiSession& operator=(const MpiSession&) = delete;

 private:
  MpiSession();

  bool finalizes_ = false;
  std::atomic<bool> abandoned_ = false;
};

}  // namespace libtrain::detail
