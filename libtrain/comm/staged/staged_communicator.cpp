#include <libtrain/comm/staged/staged_communicator.hpp>

#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/staged/staged_operation.hpp>
#include <libtrain/comm/tensor_checks.hpp>

namespace libtrain {

namespace {

bool is_in_place(const at::Tensor& input, const at::Tensor& output) {
  return input.const_data_ptr() == output.const_data_ptr();
}

}  // namespace

StagedCommunicator::StagedCommunicator(std::shared_ptr<Communicator> host, const at::Device& device)
    : host_(std::move(host)), device_(device), name_(text("staged ", host_->backend())) {}

Work StagedCommunicator::all_reduce(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                                    const CallOptions& options) {
  detail::check_op(detail::checked_in_out(*this, input, output, "all_reduce"), op, "all_reduce");
  const auto staged_input = copy_of(input);
  const auto staged_output = is_in_place(input, output) ? staged_input : buffer_for(output);
  return copy_back(host_->all_reduce(staged_input, staged_output, op, options), staged_output, output);
}

Work StagedCommunicator::reduce(const at::Tensor& input, const at::Tensor& output, int root, ReduceOp op,
                                const CallOptions& options) {
  detail::check_root(*this, root, "reduce");
  if (rank() != root) {
    detail::check_op(detail::checked_type(*this, input, "reduce"), op, "reduce");
    return host_->reduce(copy_of(input), at::Tensor{}, root, op, options);
  }
  detail::check_op(detail::checked_in_out(*this, input, output, "reduce"), op, "reduce");
  const auto staged_input = copy_of(input);
  const auto staged_output = is_in_place(input, output) ? staged_input : buffer_for(output);
  return copy_back(host_->reduce(staged_input, staged_output, root, op, options), staged_output, output);
}

Work StagedCommunicator::broadcast(const at::Tensor& tensor, int root, const CallOptions& options) {
  detail::checked_type(*this, tensor, "broadcast");
  detail::check_root(*this, root, "broadcast");
  if (rank() == root) return host_->broadcast(copy_of(tensor), root, options);
  const auto staged = buffer_for(tensor);
  return copy_back(host_->broadcast(staged, root, options), staged, tensor);
}

Work StagedCommunicator::all_gather(const at::Tensor& input, const at::Tensor& output, const CallOptions& options) {
  detail::checked_pair(*this, input, output, world_size(), "all_gather");
  const auto staged_output = buffer_for(output);
  return copy_back(host_->all_gather(copy_of(input), staged_output, options), staged_output, output);
}

Work StagedCommunicator::reduce_scatter(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                                        const CallOptions& options) {
  const auto type = detail::checked_pair(*this, output, input, world_size(), "reduce_scatter");
  detail::check_op(type, op, "reduce_scatter");
  const auto staged_output = buffer_for(output);
  return copy_back(host_->reduce_scatter(copy_of(input), staged_output, op, options), staged_output, output);
}

Work StagedCommunicator::all_to_all(const at::Tensor& input, const at::Tensor& output, const CallOptions& options) {
  detail::checked_parts(*this, input, output, "all_to_all");
  const auto staged_output = buffer_for(output);
  return copy_back(host_->all_to_all(copy_of(input), staged_output, options), staged_output, output);
}

std::shared_ptr<Communicator> StagedCommunicator::split(int color, int key) {
  return std::make_shared<StagedCommunicator>(host_->split(color, key), device_);
}

at::Tensor StagedCommunicator::allocate(std::int64_t elements, at::ScalarType type) {
  if (elements < 0) throw UsageError(text("allocate was given ", elements, " elements."));
  return at::zeros({elements}, at::TensorOptions(type).device(device_));
}

at::Tensor StagedCommunicator::buffer_for(const at::Tensor& tensor) {
  for (const auto& operation : unfinished_) {
    if (operation->writes(tensor)) operation->wait();
  }
  // Pinned memory needs the device's driver, and the CPU has none.
  return at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()).pinned_memory(!device_.is_cpu()));
}

at::Tensor StagedCommunicator::copy_of(const at::Tensor& tensor) {
  auto staged = buffer_for(tensor);
  const at::NoGradGuard no_grad;
  staged.copy_(tensor);
  return staged;
}

Work StagedCommunicator::copy_back(Work host_work, const at::Tensor& staging, const at::Tensor& output) {
  auto operation = std::make_shared<detail::StagedOperation>(std::move(host_work), staging, output);
  std::erase_if(unfinished_, [](const auto& earlier) { return earlier->is_finished(); });
  unfinished_.push_back(operation);
  return Work{std::move(operation)};
}

}  // namespace libtrain
