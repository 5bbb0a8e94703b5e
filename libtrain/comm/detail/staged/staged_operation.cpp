#include <libtrain/comm/detail/staged/staged_operation.hpp>

#include <functional>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

namespace libtrain::detail {

namespace {

const void* end_of(const at::Tensor& tensor) {
  return static_cast<const char*>(tensor.const_data_ptr()) + tensor.nbytes();
}

}  // namespace

StagedOperation::StagedOperation(const at::Device& device, std::vector<StagedPiece> pieces, StagingBuffers buffers,
                                 const at::Tensor& output, std::shared_ptr<const StreamMark> called)
    : device_(device), pieces_(std::move(pieces)), buffers_(std::move(buffers)), last_(std::move(called)) {
  if (!output.defined()) return;
  begin_ = output.const_data_ptr();
  end_ = end_of(output);
}

void StagedOperation::wait() {
  const std::lock_guard lock(mutex_);
  bring_back(pieces_.size());
  if (failure_) std::rethrow_exception(failure_);
  last_->block_current_stream();
}

bool StagedOperation::done() {
  // The thread that holds the lock is waiting for the result, which is not complete yet.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  auto ready = copied_;
  while (ready < pieces_.size() && pieces_[ready].work.done()) ++ready;
  bring_back(ready);
  if (failure_) return true;
  return pieces_.empty() && last_->is_passed();
}

std::optional<WorkTimes> StagedOperation::times() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !pieces_.empty() || failure_) return {};
  return times_;
}

bool StagedOperation::writes(const at::Tensor& tensor) const {
  const std::less<> before;
  return before(begin_, end_of(tensor)) && before(tensor.const_data_ptr(), end_);
}

void StagedOperation::bring_back(std::size_t end) {
  if (copied_ == end) return;
  const auto attempt = [this](const auto& step) {
    try {
      step();
    } catch (...) {
      if (!failure_) failure_ = std::current_exception();
    }
  };
  attempt([&] { copy_to_device(end); });
  // Also after a failure: copies of earlier pieces may be pending. What has no output, such as a broadcast on its root,
  // is done with the host's collective.
  attempt([&] {
    if (begin_ == nullptr) return;
    last_ = std::make_shared<const StreamMark>(device_);
    for (const auto& buffer : buffers_) buffer->hold_until(last_);
  });
  if (!failure_ && copied_ < pieces_.size()) return;
  pieces_.clear();
  copied_ = 0;
  buffers_.clear();
}

void StagedOperation::copy_to_device(std::size_t end) {
  last_->block_current_stream();
  for (; copied_ < end; ++copied_) {
    auto& piece = pieces_[copied_];
    piece.work.wait();
    if (const auto of_piece = piece.work.times()) {
      if (!times_) times_ = of_piece;
      times_->ended = of_piece->ended;
    }
    if (!piece.output.defined()) continue;
    // As where the output was made: only there may an inference tensor be written.
    const c10::InferenceMode mode{piece.output.is_inference()};
    const at::NoGradGuard no_grad;
    piece.output.copy_(piece.staged_output, /*non_blocking=*/true);
    // The piece may have the last reference to the tensor, and be destroyed before the copy has finished.
    if (!device_.is_cpu()) piece.output.record_stream(current_stream(device_));
  }
}

}  // namespace libtrain::detail
