#include <libtrain/comm/detail/single/single_communicator.hpp>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <libtrain/comm/detail/device/stream_mark.hpp>
#include <libtrain/comm/detail/tensor_checks.hpp>

namespace libtrain::detail {

Work SingleCommunicator::copy(const at::Tensor& input, const at::Tensor& output) {
  check_alive();
  const at::NoGradGuard no_grad;
  if (input.data_ptr() != output.data_ptr()) output.view({-1}).copy_(input.view({-1}));
  return {};
}

Work SingleCommunicator::all_reduce(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                                    const CallOptions& /*options*/) {
  check_op(checked_in_out(*this, input, output, "all_reduce"), op, "all_reduce");
  return copy(input, output);
}

Work SingleCommunicator::reduce(const at::Tensor& input, const at::Tensor& output, int root, ReduceOp op,
                                const CallOptions& /*options*/) {
  check_root(*this, root, "reduce");
  check_op(checked_in_out(*this, input, output, "reduce"), op, "reduce");
  return copy(input, output);
}

Work SingleCommunicator::broadcast(const at::Tensor& tensor, int root, const CallOptions& /*options*/) {
  checked_type(*this, tensor, "broadcast");
  check_root(*this, root, "broadcast");
  check_alive();
  return {};
}

Work SingleCommunicator::all_gather(const at::Tensor& input, const at::Tensor& output, const CallOptions& /*options*/) {
  checked_gather(*this, input, output, "all_gather");
  return copy(input, output);
}

Work SingleCommunicator::reduce_scatter(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                                        const CallOptions& /*options*/) {
  check_op(checked_gather(*this, output, input, "reduce_scatter"), op, "reduce_scatter");
  return copy(input, output);
}

Work SingleCommunicator::all_to_all(const at::Tensor& input, const at::Tensor& output, const CallOptions& /*options*/) {
  checked_parts(*this, input, output, "all_to_all");
  return copy(input, output);
}

void SingleCommunicator::barrier(const CallOptions& /*options*/) {
  check_alive();
}

std::vector<std::string> SingleCommunicator::all_gather_bytes(const std::string& bytes,
                                                              const CallOptions& /*options*/) {
  check_alive();
  return {bytes};
}

std::string SingleCommunicator::broadcast_bytes(const std::string& bytes, int root, const CallOptions& /*options*/) {
  check_root(*this, root, "broadcast_bytes");
  check_alive();
  return bytes;
}

std::shared_ptr<Communicator> SingleCommunicator::split(int color, int /*key*/, const CallOptions& /*options*/) {
  check_color(color);
  check_alive();
  return std::make_shared<SingleCommunicator>(device_, is_recording_);
}

at::Tensor SingleCommunicator::allocate(std::int64_t elements, at::ScalarType type) {
  check_alive();
  checked_bytes(elements, type);
  return at::zeros({elements}, at::TensorOptions(type).device(device_));
}

bool SingleCommunicator::is_recording() const {
  return is_recording_ && is_recording_(current_stream(device_));
}

void SingleCommunicator::abort(const std::string& reason, ExitCode /*code*/) noexcept {
  failure_.set(reason.empty() ? "the communicator was aborted" : reason);
}

void SingleCommunicator::check_alive() const {
  failure_.throw_if_any();
}

}  // namespace libtrain::detail
