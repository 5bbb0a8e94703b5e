#pragma once

#include <nccl.h>

#include <functional>
#include <mutex>
#include <string>

#include <libtrain/base/clock.hpp>
#include <libtrain/comm/detail/nccl/nccl_watchdog.hpp>

namespace libtrain::detail {

/// Owns a non-blocking ncclComm_t: NCCL's background work is polled until a deadline, so that a missing peer causes an
/// error instead of a hang. Any thread may call it.
class NcclComm : public WatchedComm {
 public:
  /// Starts to connect the current CUDA device with all ranks that have the same `id`.
  NcclComm(const ncclUniqueId& id, int rank, int world_size);

  /// Aborts the communicator if it has not been closed. Blocks for at most one second: a thread stuck in NCCL is
  /// detached.
  ~NcclComm() override;

  NcclComm(const NcclComm&) = delete;  // one owner of the communicator
  NcclComm& operator=(const NcclComm&) = delete;

  /// Returns when all ranks are connected; the communicator may be used from then on. Throws CommunicationError at the
  /// deadline.
  void connect(const Deadline& deadline);

  /// Makes the NCCL calls in `calls` as one group and returns when their kernels are in the stream. NCCL launches them
  /// on its own thread, and connects to the peers for the first collective of a kind.
  void launch(const std::function<ncclResult_t(ncclComm_t)>& calls, const Deadline& deadline);

  void enter_thread() noexcept override;
  std::string asynchronous_error() override;
  void abort() noexcept override;
  void close() noexcept override;

 private:
  ncclResult_t state();
  ncclResult_t poll(const Deadline& deadline);
  ncclComm_t take() noexcept;

  int rank_;
  int world_size_;
  int device_;
  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;  // null once aborted or closed
};

}  // namespace libtrain::detail
