#pragma once

#include <nccl.h>

#include <functional>
#include <mutex>
#include <string>

#include <libtrain/base/clock.hpp>
#include <libtrain/comm/detail/nccl/nccl_watchdog.hpp>

namespace libtrain::detail {

/// Owns an ncclComm_t that never blocks its callers: what NCCL does in the background is polled until a deadline, so
/// that a missing peer ends in an error and not in a hang. Any thread may call it.
class NcclComm : public WatchedComm {
 public:
  /// Begins to connect the current CUDA device with all ranks that were given `id`.
  NcclComm(const ncclUniqueId& id, int rank, int world_size);

  /// Aborts what has not been closed. Blocks for a second at most: a thread stuck in NCCL is left behind.
  ~NcclComm() override;

  NcclComm(const NcclComm&) = delete;  // one owner of the communicator
  NcclComm& operator=(const NcclComm&) = delete;

  /// Returns when all ranks have been reached; the communicator may be used from then on. Throws CommunicationError
  /// where they have not come before the deadline.
  void connect(const Deadline& deadline);

  /// Makes the NCCL calls in `calls` as one group and returns when their kernels are in the stream. NCCL does this
  /// on a thread of its own, and connects to the peers for the first of a kind.
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
