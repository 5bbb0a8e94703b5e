#include <libtrain/comm/detail/host_communicator.hpp>

#include <algorithm>
#include <array>
#include <cstring>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/tensor_checks.hpp>

namespace libtrain::detail {

namespace {

std::uint64_t count_of(const at::Tensor& tensor) {
  return static_cast<std::uint64_t>(tensor.numel());
}

// What all_gather_bytes() sends first: all of a short text, only the length of another.
struct ShortText {
  std::uint64_t length = 0;
  std::array<char, 504> text = {};
};

// Reduces float32 copies if the transport does not support the type, and rounds once.
template <typename Reduce>
void reduce_widened(HostTransport& transport, DataType type, const at::Tensor& input, const at::Tensor& output,
                    const Reduce& reduce) {
  if (transport.reduces(type)) return reduce(input, output, type);
  // As where the output was made: only there may an inference tensor be written.
  const c10::InferenceMode mode{output.defined() && output.is_inference()};
  const at::NoGradGuard no_grad;
  const auto wide_input = input.to(at::kFloat);
  const bool in_place = !output.defined() || output.numel() == input.numel();
  const auto wide_output = in_place ? wide_input : at::empty(output.sizes(), at::kFloat);
  reduce(wide_input, wide_output, DataType::float32);
  if (output.defined()) output.view({-1}).copy_(wide_output.view({-1}));  // shapes may differ
}

}  // namespace

HostCommunicator::HostCommunicator(std::unique_ptr<HostTransport> transport, CommunicatorOptions options)
    : rank_(transport->rank()), world_size_(transport->world_size()), thread_(std::move(transport), options.timeout) {
  thread_.start();
}

std::string_view HostCommunicator::backend() const {
  return thread_.transport().name();
}

bool HostCommunicator::supports(const at::Device& device) const {
  return device.is_cpu();
}

Work HostCommunicator::all_reduce(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                                  const CallOptions& options) {
  const auto type = checked_in_out(*this, input, output, "all_reduce");
  check_op(type, op, "all_reduce");
  const auto body = [input, output, type, op](HostTransport& transport, const WaitPolicy& policy) {
    reduce_widened(transport, type, input, output, [&](const at::Tensor& in, const at::Tensor& out, DataType as) {
      transport.all_reduce(in.data_ptr(), out.data_ptr(), count_of(in), as, op, policy);
    });
  };
  return thread_.submit({CallKind::all_reduce, count_of(input), type, op},
                        {input.data_ptr(), output.data_ptr(), options.timeout}, body);
}

Work HostCommunicator::reduce(const at::Tensor& input, const at::Tensor& output, int root, ReduceOp op,
                              const CallOptions& options) {
  check_root(*this, root, "reduce");
  const bool mine = rank_ == root;
  const auto type = mine ? checked_in_out(*this, input, output, "reduce") : checked_type(*this, input, "reduce");
  check_op(type, op, "reduce");
  const auto target = mine ? output : at::Tensor{};
  const auto body = [input, target, type, op, root](HostTransport& transport, const WaitPolicy& policy) {
    reduce_widened(transport, type, input, target, [&](const at::Tensor& in, const at::Tensor& out, DataType as) {
      transport.reduce(in.data_ptr(), target.defined() ? out.data_ptr() : nullptr, count_of(in), as, op, root, policy);
    });
  };
  return thread_.submit({CallKind::reduce, count_of(input), type, op, root},
                        {input.data_ptr(), mine ? output.data_ptr() : nullptr, options.timeout}, body);
}

Work HostCommunicator::broadcast(const at::Tensor& tensor, int root, const CallOptions& options) {
  const auto type = checked_type(*this, tensor, "broadcast");
  check_root(*this, root, "broadcast");
  const auto body = [tensor, root](HostTransport& transport, const WaitPolicy& policy) {
    transport.broadcast(tensor.data_ptr(), tensor.nbytes(), root, policy);
  };
  return thread_.submit({.kind = CallKind::broadcast, .count = count_of(tensor), .type = type, .root = root},
                        {nullptr, tensor.data_ptr(), options.timeout}, body);
}

Work HostCommunicator::all_gather(const at::Tensor& input, const at::Tensor& output, const CallOptions& options) {
  const auto type = checked_gather(*this, input, output, "all_gather");
  const auto body = [input, output](HostTransport& transport, const WaitPolicy& policy) {
    transport.all_gather(input.data_ptr(), output.data_ptr(), input.nbytes(), policy);
  };
  return thread_.submit({CallKind::all_gather, count_of(input), type},
                        {input.data_ptr(), output.data_ptr(), options.timeout}, body);
}

Work HostCommunicator::reduce_scatter(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                                      const CallOptions& options) {
  const auto type = checked_gather(*this, output, input, "reduce_scatter");
  check_op(type, op, "reduce_scatter");
  const auto body = [input, output, type, op](HostTransport& transport, const WaitPolicy& policy) {
    reduce_widened(transport, type, input, output, [&](const at::Tensor& in, const at::Tensor& out, DataType as) {
      transport.reduce_scatter(in.data_ptr(), out.data_ptr(), count_of(out), as, op, policy);
    });
  };
  return thread_.submit({CallKind::reduce_scatter, count_of(output), type, op},
                        {input.data_ptr(), output.data_ptr(), options.timeout}, body);
}

Work HostCommunicator::all_to_all(const at::Tensor& input, const at::Tensor& output, const CallOptions& options) {
  const auto type = checked_parts(*this, input, output, "all_to_all");
  const auto part = input.nbytes() / static_cast<std::size_t>(world_size_);
  const auto body = [input, output, part](HostTransport& transport, const WaitPolicy& policy) {
    transport.all_to_all(input.data_ptr(), output.data_ptr(), part, policy);
  };
  return thread_.submit({CallKind::all_to_all, count_of(input), type},
                        {input.data_ptr(), output.data_ptr(), options.timeout}, body);
}

void HostCommunicator::barrier(const CallOptions& options) {
  // The arrival before each collective is the barrier.
  thread_.submit({.kind = CallKind::barrier}, {.timeout = options.timeout}, [](HostTransport&, const WaitPolicy&) {})
      .wait();
}

// The bodies below own what they use: after a wait that gives up, the communication thread must not have references
// into a stack frame that has been left.

std::vector<std::string> HostCommunicator::all_gather_bytes(const std::string& bytes, const CallOptions& options) {
  const auto ranks = static_cast<std::size_t>(world_size_);
  const auto gathered = std::make_shared<std::vector<std::string>>(ranks);
  const auto exchange = [bytes, gathered, ranks](HostTransport& transport, const WaitPolicy& policy) {
    // With its length, a short text needs one exchange.
    ShortText mine{.length = bytes.size()};
    if (mine.length <= mine.text.size()) std::copy(bytes.begin(), bytes.end(), mine.text.begin());
    std::vector<ShortText> all(ranks);
    transport.all_gather(&mine, all.data(), sizeof(ShortText), policy);
    const auto longest = std::ranges::max_element(all, {}, &ShortText::length)->length;
    if (longest <= mine.text.size()) {
      for (std::size_t rank = 0; rank < ranks; ++rank)
        (*gathered)[rank].assign(all[rank].text.data(), all[rank].length);
      return;
    }
    std::string padded = bytes;
    padded.resize(longest);
    std::string of_ranks(longest * ranks, '\0');
    transport.all_gather(padded.data(), of_ranks.data(), longest, policy);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      (*gathered)[rank].assign(of_ranks, rank * longest, all[rank].length);
    }
  };
  thread_.submit({.kind = CallKind::all_gather_bytes}, {.timeout = options.timeout}, exchange).wait();
  return std::move(*gathered);
}

std::string HostCommunicator::broadcast_bytes(const std::string& bytes, int root, const CallOptions& options) {
  check_root(*this, root, "broadcast_bytes");
  const auto received = std::make_shared<std::string>(bytes);
  const auto exchange = [received, root](HostTransport& transport, const WaitPolicy& policy) {
    std::uint64_t length = received->size();
    transport.broadcast(&length, sizeof(length), root, policy);
    received->resize(length);
    transport.broadcast(received->data(), length, root, policy);
  };
  thread_.submit({.kind = CallKind::broadcast_bytes, .root = root}, {.timeout = options.timeout}, exchange).wait();
  return std::move(*received);
}

std::shared_ptr<Communicator> HostCommunicator::split(int color, int key, const CallOptions& options) {
  check_color(color);
  const auto part = std::make_shared<std::unique_ptr<HostTransport>>();
  const auto body = [part, color, key](HostTransport& transport, const WaitPolicy& policy) {
    *part = transport.split(color, key, policy);
  };
  thread_.submit({.kind = CallKind::split}, {.timeout = options.timeout}, body).wait();
  return std::make_shared<HostCommunicator>(std::move(*part), CommunicatorOptions{.timeout = thread_.timeout()});
}

at::Tensor HostCommunicator::allocate(std::int64_t elements, at::ScalarType type) {
  thread_.throw_if_failed();
  const auto bytes = checked_bytes(elements, type);
  auto memory = thread_.allocate(bytes);
  if (memory == nullptr) return at::zeros({elements}, type);
  std::memset(memory.get(), 0, bytes);
  return at::from_blob(memory.get(), {elements}, [memory](void*) mutable { memory.reset(); }, type);
}

void HostCommunicator::abort(const std::string& reason, ExitCode code) noexcept {
  thread_.abort(reason, code);
}

}  // namespace libtrain::detail
