#include <libtrain/comm/single/single_communicator.hpp>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <libtrain/comm/tensor_checks.hpp>

namespace libtrain {

using detail::check_op;
using detail::check_root;
using detail::checked_pair;
using detail::checked_type;

Work SingleCommunicator::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  check_op(checked_type(*this, tensor, "all_reduce"), op, "all_reduce");
  check_alive();
  return {};
}

Work SingleCommunicator::broadcast(const at::Tensor& tensor, int root) {
  checked_type(*this, tensor, "broadcast");
  check_root(*this, root, "broadcast");
  check_alive();
  return {};
}

Work SingleCommunicator::all_gather(const at::Tensor& input, const at::Tensor& output) {
  checked_pair(*this, input, output, "all_gather");
  check_alive();
  const at::NoGradGuard no_grad;
  output.view({-1}).copy_(input.view({-1}));
  return {};
}

Work SingleCommunicator::reduce_scatter(const at::Tensor& input, const at::Tensor& output, ReduceOp op) {
  check_op(checked_pair(*this, output, input, "reduce_scatter"), op, "reduce_scatter");
  check_alive();
  const at::NoGradGuard no_grad;
  output.view({-1}).copy_(input.view({-1}));
  return {};
}

void SingleCommunicator::barrier() {
  check_alive();
}

std::vector<std::string> SingleCommunicator::all_gather_bytes(const std::string& bytes) {
  check_alive();
  return {bytes};
}

std::string SingleCommunicator::broadcast_bytes(const std::string& bytes, int root) {
  check_root(*this, root, "broadcast_bytes");
  check_alive();
  return bytes;
}

std::shared_ptr<Communicator> SingleCommunicator::split(int color, int /*key*/) {
  detail::check_color(color);
  check_alive();
  return std::make_shared<SingleCommunicator>();
}

at::Tensor SingleCommunicator::allocate(std::int64_t elements, at::ScalarType type) {
  return at::zeros({elements}, type);
}

void SingleCommunicator::abort(const std::string& reason, ExitCode /*code*/) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = reason;
  } catch (...) {
    // Out of memory: there is no peer to tell.
  }
}

void SingleCommunicator::check_alive() const {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw CommunicationError(failure_);
}

}  // namespace libtrain
