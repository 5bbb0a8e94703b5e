#include <libtrain/comm/detail/staged/staged_communicator.hpp>

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/tensor_checks.hpp>

namespace libtrain::detail {

namespace {

// Must be the same on all ranks, because each piece is a separate collective.
constexpr std::int64_t kPieceBytes = 4 << 20;

// Ranks agree on the number of elements; the shapes may differ.
at::Tensor flat(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.view({-1}) : tensor;
}

at::Tensor part_of(const at::Tensor& tensor, std::int64_t begin, std::int64_t elements) {
  return tensor.defined() ? tensor.narrow(0, begin, elements) : tensor;
}

}  // namespace

StagedCommunicator::StagedCommunicator(std::shared_ptr<Communicator> host, const at::Device& device)
    : host_(std::move(host)), device_(device), name_(text("staged ", host_->backend())), pool_(host_, device) {}

// Tests take a CPU for the device.
bool StagedCommunicator::is_on_host(const at::Tensor& tensor) const {
  return tensor.defined() && tensor.device().is_cpu() && !device_.is_cpu();
}

Work StagedCommunicator::all_reduce(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                                    const CallOptions& options) {
  if (is_on_host(input)) return host_->all_reduce(input, output, op, options);
  check_op(checked_in_out(*this, input, output, "all_reduce"), op, "all_reduce");
  return run_in_pieces(input, output, [&](const StagedPiece& piece) {
    return host_->all_reduce(piece.staged_input, piece.staged_output, op, options);
  });
}

Work StagedCommunicator::reduce(const at::Tensor& input, const at::Tensor& output, int root, ReduceOp op,
                                const CallOptions& options) {
  if (is_on_host(input)) return host_->reduce(input, output, root, op, options);
  check_root(*this, root, "reduce");
  const bool is_root = rank() == root;
  const auto type = is_root ? checked_in_out(*this, input, output, "reduce") : checked_type(*this, input, "reduce");
  check_op(type, op, "reduce");
  return run_in_pieces(input, is_root ? output : at::Tensor{}, [&](const StagedPiece& piece) {
    return host_->reduce(piece.staged_input, is_root ? piece.staged_output : at::Tensor{}, root, op, options);
  });
}

Work StagedCommunicator::broadcast(const at::Tensor& tensor, int root, const CallOptions& options) {
  if (is_on_host(tensor)) return host_->broadcast(tensor, root, options);
  checked_type(*this, tensor, "broadcast");
  check_root(*this, root, "broadcast");
  const bool is_root = rank() == root;
  return run_in_pieces(is_root ? tensor : at::Tensor{}, is_root ? at::Tensor{} : tensor,
                       [&](const StagedPiece& piece) { return host_->broadcast(piece.staged_output, root, options); });
}

Work StagedCommunicator::all_gather(const at::Tensor& input, const at::Tensor& output, const CallOptions& options) {
  if (is_on_host(input)) return host_->all_gather(input, output, options);
  checked_gather(*this, input, output, "all_gather");
  settle(input, output);
  const auto buffer = pool_.take(output.numel(), output.scalar_type());
  const auto whole = buffer->first(output.numel());
  const auto part = whole.narrow(0, rank() * input.numel(), input.numel());
  const StagedPiece all{.input = flat(input), .staged_input = part, .staged_output = whole, .output = flat(output)};
  return run({all}, {buffer}, output, [&](const StagedPiece& piece) {
    return host_->all_gather(piece.staged_input, piece.staged_output, options);
  });
}

Work StagedCommunicator::reduce_scatter(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                                        const CallOptions& options) {
  if (is_on_host(input)) return host_->reduce_scatter(input, output, op, options);
  const auto type = checked_gather(*this, output, input, "reduce_scatter");
  check_op(type, op, "reduce_scatter");
  settle(input, output);
  const auto buffer = pool_.take(input.numel(), input.scalar_type());
  const auto whole = buffer->first(input.numel());
  const auto part = whole.narrow(0, rank() * output.numel(), output.numel());
  const StagedPiece all{.input = flat(input), .staged_input = whole, .staged_output = part, .output = flat(output)};
  return run({all}, {buffer}, output, [&](const StagedPiece& piece) {
    return host_->reduce_scatter(piece.staged_input, piece.staged_output, op, options);
  });
}

Work StagedCommunicator::all_to_all(const at::Tensor& input, const at::Tensor& output, const CallOptions& options) {
  if (is_on_host(input)) return host_->all_to_all(input, output, options);
  checked_parts(*this, input, output, "all_to_all");
  settle(input, output);
  const auto sent = pool_.take(input.numel(), input.scalar_type());
  const auto received = pool_.take(output.numel(), output.scalar_type());
  const StagedPiece all{.input = flat(input),
                        .staged_input = sent->first(input.numel()),
                        .staged_output = received->first(output.numel()),
                        .output = flat(output)};
  return run({all}, {sent, received}, output, [&](const StagedPiece& piece) {
    return host_->all_to_all(piece.staged_input, piece.staged_output, options);
  });
}

std::shared_ptr<Communicator> StagedCommunicator::split(int color, int key, const CallOptions& options) {
  return std::make_shared<StagedCommunicator>(host_->split(color, key, options), device_);
}

at::Tensor StagedCommunicator::allocate(std::int64_t elements, at::ScalarType type) {
  checked_bytes(elements, type);
  host_->allocate(0, type);  // throws if the group has failed
  return at::zeros({elements}, at::TensorOptions(type).device(device_));
}

void StagedCommunicator::settle(const at::Tensor& input, const at::Tensor& output) {
  std::erase_if(unfinished_, [](const auto& earlier) { return earlier->done(); });
  for (const auto& earlier : unfinished_) {
    const auto touches = [&](const at::Tensor& tensor) { return tensor.defined() && earlier->writes(tensor); };
    if (touches(input) || touches(output)) earlier->wait();
  }
}

// All pieces have the same length except the last one, which is shorter and may be empty. So ranks with different
// numbers of elements make different calls before the pieces end, and later calls are not mistaken for these.
Work StagedCommunicator::run_in_pieces(const at::Tensor& input, const at::Tensor& output, const HostCall& call) {
  settle(input, output);
  const auto& either = input.defined() ? input : output;
  const auto elements = either.numel();
  const auto max_length = kPieceBytes / either.element_size();
  const auto buffer = pool_.take(elements, either.scalar_type());
  std::vector<StagedPiece> pieces;
  for (std::int64_t begin = 0; begin <= elements; begin += max_length) {
    const auto length = std::min(max_length, elements - begin);
    const auto staged = buffer->first(elements).narrow(0, begin, length);
    pieces.push_back({.input = part_of(flat(input), begin, length),
                      .staged_input = staged,
                      .staged_output = staged,
                      .output = part_of(flat(output), begin, length)});
  }
  return run(std::move(pieces), {buffer}, output, call);
}

Work StagedCommunicator::run(std::vector<StagedPiece> pieces, StagingBuffers buffers, const at::Tensor& output,
                             const HostCall& call) {
  const at::NoGradGuard no_grad;
  std::vector<std::shared_ptr<const StreamMark>> fetched;
  for (const auto& piece : pieces) {
    if (!piece.input.defined()) continue;
    piece.staged_input.copy_(piece.input, /*non_blocking=*/true);
    fetched.push_back(std::make_shared<const StreamMark>(device_));
    for (const auto& buffer : buffers) buffer->hold_until(fetched.back());
  }
  const auto called = fetched.empty() ? std::make_shared<const StreamMark>(device_) : fetched.back();
  for (std::size_t index = 0; index < pieces.size(); ++index) {
    if (!fetched.empty()) fetched[index]->wait();
    pieces[index].work = call(pieces[index]);
    pieces[index].input.reset();
  }
  auto operation = std::make_shared<StagedOperation>(device_, std::move(pieces), std::move(buffers), output, called);
  unfinished_.push_back(operation);
  return Work{std::move(operation)};
}

}  // namespace libtrain::detail
