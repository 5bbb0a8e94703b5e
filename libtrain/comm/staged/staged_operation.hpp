#pragma once

#include <atomic>
#include <exception>
#include <mutex>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/work.hpp>

namespace libtrain::detail {

/// A collective on host memory whose result has still to be copied to the tensor it is for. The copy is made once, by
/// whoever first waits for the operation or finds it done.
class StagedOperation : public Pending {
 public:
  StagedOperation(Work host_work, at::Tensor staging, at::Tensor output);

  /// Returns when the result is in the output, for every stream.
  void wait() override;

  /// Copies the result back where the host is done with it.
  bool done() override;

  bool is_finished() const { return finished_.load(std::memory_order_acquire); }

  /// Whether the copy will touch memory of `tensor`.
  bool writes(const at::Tensor& tensor) const;

 private:
  void finish();

  const void* begin_;
  const void* end_;
  std::mutex mutex_;
  Work host_work_;
  at::Tensor staging_;
  at::Tensor output_;
  std::exception_ptr failure_;
  std::atomic<bool> finished_ = false;
};

}  // namespace libtrain::detail
