#pragma once

#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <set>
#include <string>

#include <libtrain/base/clock.hpp>
#include <libtrain/comm/detail/device/device_watchdog.hpp>

namespace libtrain::detail {

/// Owns a non-blocking ncclComm_t: NCCL's background work is polled until a deadline, so that a missing peer causes an
/// error instead of a hang. Any thread may call it; one at a time is inside NCCL with this communicator, since
/// ncclCommGetAsyncError joins NCCL's own threads.
///
/// NCCL starts a thread for each group of a non-blocking communicator of several ranks. A blocking communicator does
/// without, but hangs in the first collective of a kind if a peer does not come: the deadline of a launch would need a
/// thread of libtrain's, and ncclCommAbort from another one. The cost has not been measured on GPUs yet; measure it
/// before changing this.
class NcclComm : public WatchedComm {
 public:
  /// Starts to connect CUDA device `device`, the current one of this thread, with all ranks that have the same `id`.
  NcclComm(const ncclUniqueId& id, int rank, int world_size, int device);

  /// Aborts the communicator if it has not been closed. Blocks for at most one second: a thread stuck in NCCL is
  /// detached.
  ~NcclComm() override;

  NcclComm(const NcclComm&) = delete;  // one owner of the communicator
  NcclComm& operator=(const NcclComm&) = delete;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }

  /// Returns when all ranks are connected; the communicator may be used from then on. Throws CommunicationError at the
  /// deadline.
  void connect(const Deadline& deadline);

  /// Makes the NCCL calls in `calls` as one group and returns when their kernels are in the stream. NCCL launches them
  /// on its own thread, and connects to the peers for the first collective of a kind. After an error or at the
  /// deadline, that thread may still launch them until `abort` has returned.
  void launch(const std::function<ncclResult_t(ncclComm_t)>& calls, const Deadline& deadline);

  /// Registers memory from ncclMemAlloc for the collectives; waits for a launch that is in progress. Null if NCCL
  /// refuses, and once the communicator has ended.
  void* register_memory(void* data, std::size_t bytes) noexcept;

  /// Ends a registration; has no effect once the communicator has ended, which ends all. Returns false, and does
  /// nothing, if a launch is in progress for half a second: the memory is still registered then.
  bool deregister(void* registration) noexcept;

  /// Whether NCCL's thread may be reading the registrations.
  bool is_launching() const;

  void enter_thread() noexcept override;
  std::string asynchronous_error() override;
  std::string describe(const std::exception& error) const override;
  void abort() noexcept override;

  /// Blocks for at most three seconds, as long as the peers close theirs. A thread stuck in NCCL is detached.
  void close() noexcept override;
  void leave() noexcept override;

 private:
  ncclResult_t state();
  ncclResult_t poll(const Deadline& deadline);
  ncclComm_t take() noexcept;
  bool wait_for_launch(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds limit);
  void deregister_all() noexcept;

  const int rank_;
  const int world_size_;
  const int device_;
  mutable std::mutex mutex_;
  std::condition_variable launched_;  // or the communicator has ended
  bool is_launching_ = false;         // also after a launch that failed
  ncclComm_t comm_ = nullptr;         // null once aborted, closed or left
  std::set<void*> registrations_;
};

}  // namespace libtrain::detail
