#pragma once

#include <nccl.h>

#include <functional>
#include <mutex>
#include <string>

#include <libtrain/base/clock.hpp>
#include <libtrain/comm/nccl/watched_comm.hpp>

namespace libtrain::detail {

/// Owns an ncclComm_t that never blocks its callers: what NCCL does in the background is polled until a deadline, so
/// that a missing peer ends in an error and not in a hang. Any thread may call it.
class NcclComm : public WatchedComm {
 public:
  /// On the current CUDA device, with all ranks that were given `id`. Throws CommunicationError where they have not
  /// come before the deadline.
  NcclComm(const ncclUniqueId& id, int rank, int world_size, const Deadline& deadline);

  /// Aborts what has not been closed.
  ~NcclComm() override { abort(); }

  NcclComm(const NcclComm&) = delete;  // one owner of the communicator
  NcclComm& operator=(const NcclComm&) = delete;

  /// Makes the NCCL calls in `calls` as one group and returns when their kernels are in the stream. NCCL does this
  /// on a thread of its own, and connects to the peers for the first of a kind.
  void launch(const std::function<ncclResult_t(ncclComm_t)>& calls, const Deadline& deadline);

  std::string asynchronous_error() override;
  void abort() noexcept override;
  void close() noexcept override;

 private:
  ncclResult_t state();
  ncclResult_t poll(const Deadline& deadline);
  ncclComm_t take() noexcept;

  int rank_;
  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;  // null once aborted or closed
};

}  // namespace libtrain::detail
