#include <libtrain/comm/host_communicator.hpp>

#include <algorithm>
#include <cstring>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/tensor_checks.hpp>

namespace libtrain {

namespace {

using detail::check_op;
using detail::check_root;
using detail::checked_pair;
using detail::checked_type;

bool is_sixteen_bit(DataType type) {
  return type == DataType::float16 || type == DataType::bfloat16;
}

std::size_t count_of(const at::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel());
}

}  // namespace

HostCommunicator::HostCommunicator(std::unique_ptr<HostTransport> transport, CommunicatorOptions options)
    : rank_(transport->rank()), world_size_(transport->world_size()), engine_(std::move(transport), options.timeout) {}

std::string_view HostCommunicator::backend() const {
  return engine_.transport().name();
}

bool HostCommunicator::supports(const at::Device& device) const {
  return device.is_cpu();
}

Work HostCommunicator::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  const auto type = checked_type(*this, tensor, "all_reduce");
  check_op(type, op, "all_reduce");
  return engine_.submit(text("all_reduce of ", tensor.numel(), " ", to_string(type), " (", to_string(op), ")"),
                        [tensor, type, op](HostTransport& transport, const Patience& patience) {
                          if (!is_sixteen_bit(type)) {
                            transport.all_reduce(tensor.data_ptr(), count_of(tensor), type, op, patience);
                            return;
                          }
                          const at::NoGradGuard no_grad;
                          const auto wide = tensor.to(at::kFloat);
                          transport.all_reduce(wide.data_ptr(), count_of(wide), DataType::float32, op, patience);
                          tensor.copy_(wide);
                        });
}

Work HostCommunicator::broadcast(const at::Tensor& tensor, int root) {
  const auto type = checked_type(*this, tensor, "broadcast");
  check_root(*this, root, "broadcast");
  return engine_.submit(text("broadcast of ", tensor.numel(), " ", to_string(type), " from rank ", root),
                        [tensor, root](HostTransport& transport, const Patience& patience) {
                          transport.broadcast(tensor.data_ptr(), tensor.nbytes(), root, patience);
                        });
}

Work HostCommunicator::all_gather(const at::Tensor& input, const at::Tensor& output) {
  const auto type = checked_pair(*this, input, output, "all_gather");
  return engine_.submit(text("all_gather of ", input.numel(), " ", to_string(type)),
                        [input, output](HostTransport& transport, const Patience& patience) {
                          transport.all_gather(input.data_ptr(), output.data_ptr(), input.nbytes(), patience);
                        });
}

Work HostCommunicator::reduce_scatter(const at::Tensor& input, const at::Tensor& output, ReduceOp op) {
  const auto type = checked_pair(*this, output, input, "reduce_scatter");
  check_op(type, op, "reduce_scatter");
  return engine_.submit(text("reduce_scatter to ", output.numel(), " ", to_string(type), " (", to_string(op), ")"),
                        [input, output, type, op](HostTransport& transport, const Patience& patience) {
                          if (!is_sixteen_bit(type)) {
                            transport.reduce_scatter(input.data_ptr(), output.data_ptr(), count_of(output), type, op,
                                                     patience);
                            return;
                          }
                          const at::NoGradGuard no_grad;
                          const auto wide_input = input.to(at::kFloat);
                          const auto wide_output = at::empty(output.sizes(), at::kFloat);
                          transport.reduce_scatter(wide_input.data_ptr(), wide_output.data_ptr(), count_of(output),
                                                   DataType::float32, op, patience);
                          output.copy_(wide_output);
                        });
}

void HostCommunicator::barrier() {
  // Arriving is all there is to it.
  engine_.submit("barrier", [](HostTransport&, const Patience&) {}).wait();
}

// The bodies below own what they touch: a wait that gives up must not leave the communication thread with references
// into a stack frame that is gone.

std::vector<std::string> HostCommunicator::all_gather_bytes(const std::string& bytes) {
  const auto ranks = static_cast<std::size_t>(world_size_);
  const auto gathered = std::make_shared<std::vector<std::string>>(ranks);
  const auto exchange = [bytes, gathered, ranks](HostTransport& transport, const Patience& patience) {
    const std::uint64_t length = bytes.size();
    std::vector<std::uint64_t> lengths(ranks);
    transport.all_gather(&length, lengths.data(), sizeof(length), patience);
    const auto longest = static_cast<std::size_t>(*std::max_element(lengths.begin(), lengths.end()));
    std::vector<char> mine(longest);
    std::copy(bytes.begin(), bytes.end(), mine.begin());
    std::vector<char> all(longest * ranks);
    transport.all_gather(mine.data(), all.data(), longest, patience);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      (*gathered)[rank].assign(all.data() + rank * longest, lengths[rank]);
    }
  };
  engine_.submit("all_gather_bytes", exchange).wait();
  return std::move(*gathered);
}

std::string HostCommunicator::broadcast_bytes(const std::string& bytes, int root) {
  check_root(*this, root, "broadcast_bytes");
  const auto received = std::make_shared<std::string>(bytes);
  const auto exchange = [received, root](HostTransport& transport, const Patience& patience) {
    std::uint64_t length = received->size();
    transport.broadcast(&length, sizeof(length), root, patience);
    received->resize(length);
    transport.broadcast(received->data(), length, root, patience);
  };
  engine_.submit(text("broadcast_bytes from rank ", root), exchange).wait();
  return std::move(*received);
}

std::shared_ptr<Communicator> HostCommunicator::split(int color, int key) {
  detail::check_color(color);
  const auto part = std::make_shared<std::unique_ptr<HostTransport>>();
  engine_
      .submit("split", [part, color, key](HostTransport& transport,
                                          const Patience& patience) { *part = transport.split(color, key, patience); })
      .wait();
  return std::make_shared<HostCommunicator>(std::move(*part), CommunicatorOptions{.timeout = engine_.timeout()});
}

at::Tensor HostCommunicator::allocate(std::int64_t elements, at::ScalarType type) {
  if (elements < 0) throw UsageError(text("allocate was given ", elements, " elements."));
  const auto bytes = static_cast<std::size_t>(elements) * c10::elementSize(type);
  auto memory = engine_.allocate(bytes);
  if (memory == nullptr) return at::zeros({elements}, type);
  std::memset(memory.get(), 0, bytes);
  return at::from_blob(memory.get(), {elements}, [memory](void*) mutable { memory.reset(); }, type);
}

void HostCommunicator::abort(const std::string& reason, ExitCode code) noexcept {
  engine_.abort(reason, code);
}

}  // namespace libtrain
