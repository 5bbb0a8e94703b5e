#include <libtrain/comm/staged/staged_operation.hpp>

#include <functional>

#include <ATen/core/grad_mode.h>

namespace libtrain::detail {

namespace {

const void* end_of(const at::Tensor& tensor) {
  return static_cast<const char*>(tensor.const_data_ptr()) + tensor.nbytes();
}

}  // namespace

StagedOperation::StagedOperation(Work host_work, at::Tensor staging, at::Tensor output)
    : begin_(output.const_data_ptr()),
      end_(end_of(output)),
      host_work_(std::move(host_work)),
      staging_(std::move(staging)),
      output_(std::move(output)) {}

void StagedOperation::wait() {
  const std::lock_guard lock(mutex_);
  if (!is_finished()) finish();
  if (failure_) std::rethrow_exception(failure_);
}

bool StagedOperation::done() {
  if (is_finished()) return true;
  // Whoever holds the lock is waiting for the result: it is not there yet.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return is_finished();
  if (!is_finished() && host_work_.done()) finish();
  return is_finished();
}

bool StagedOperation::writes(const at::Tensor& tensor) const {
  const std::less<> before;
  return before(begin_, end_of(tensor)) && before(tensor.const_data_ptr(), end_);
}

void StagedOperation::finish() {
  try {
    host_work_.wait();
    const at::NoGradGuard no_grad;
    output_.copy_(staging_);
  } catch (...) {
    failure_ = std::current_exception();
  }
  host_work_ = {};
  staging_.reset();
  output_.reset();
  finished_.store(true, std::memory_order_release);
}

}  // namespace libtrain::detail
