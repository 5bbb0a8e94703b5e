#include <libtrain/comm/detail/nccl/nccl_communicator.hpp>

#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/agreement.hpp>
#include <libtrain/comm/detail/nccl/nccl_check.hpp>
#include <libtrain/comm/detail/nccl/nccl_types.hpp>
#include <libtrain/comm/detail/tensor_checks.hpp>

namespace libtrain::detail {

namespace {

// A collective in a CUDA stream.
class NcclOperation : public DeviceOperation {
 public:
  // Records the current end of `stream`. The collective uses `tensors`.
  NcclOperation(const Call& call, std::uint64_t sequence, const Deadline& deadline, std::vector<at::Tensor> tensors,
                const c10::cuda::CUDAStream& stream, std::shared_ptr<const FirstFailure> failure)
      : DeviceOperation(call, sequence, deadline),
        tensors_(std::move(tensors)),
        device_(stream.device_index()),
        failure_(std::move(failure)) {
    ended_.record(stream);
  }

  // Makes the caller's current stream wait; the host does not wait. Throws if the communicator has failed.
  void wait() override {
    failure_->throw_if_any();
    ended_.block(c10::cuda::getCurrentCUDAStream(device_));
  }

  bool done() override { return failure_->exists() || has_ended(); }

  bool has_ended() override { return ended_.query(); }

  void release() noexcept override { tensors_.clear(); }

 private:
  std::vector<at::Tensor> tensors_;
  c10::DeviceIndex device_;
  std::shared_ptr<const FirstFailure> failure_;
  c10::cuda::CUDAEvent ended_;
};

ncclUniqueId make_unique_id(Communicator& control, const CallOptions& options) {
  ncclUniqueId id{};
  const auto make = [&] {
    const auto code = control.rank() == 0 ? ncclGetUniqueId(&id) : ncclSuccess;
    if (code != ncclSuccess) throw CommunicationError(describe_nccl(code));
  };
  run_together(control, "ncclGetUniqueId", make, options);
  const auto bytes = control.broadcast_bytes(std::string(id.internal, sizeof(id.internal)), 0, options);
  std::memcpy(id.internal, bytes.data(), sizeof(id.internal));
  return id;
}

// Connects all ranks of `control` over NCCL, each with its `device`. Throws CommunicationError on all ranks if any of
// them fails. NCCL gets three quarters of `timeout`, so that the other ranks receive this rank's error before their
// timeout.
std::shared_ptr<NcclComm> connect_nccl_comm(Communicator& control, const at::Device& device,
                                            std::chrono::milliseconds timeout) {
  const CallOptions options{.timeout = timeout};
  const auto id = make_unique_id(control, options);
  // NCCL's set-up may hang if some ranks start it while others are still in the broadcast of the id.
  control.barrier(options);
  std::shared_ptr<NcclComm> comm;
  const auto connect = [&] {
    const c10::cuda::CUDAGuard on_device(device);
    comm = std::make_shared<NcclComm>(id, control.rank(), control.world_size());
    comm->connect(Deadline::after(timeout / 4 * 3));
  };
  run_together(control, "Connecting over NCCL", connect, options);
  return comm;
}

// For a step of a call: the time left until the call's deadline.
CallOptions until(const Deadline& deadline) {
  return {.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(deadline.remaining())};
}

std::size_t count_of(const at::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel());
}

ncclResult_t exchange_parts(const at::Tensor& input, const at::Tensor& output, ncclDataType_t type, int ranks,
                            ncclComm_t comm, cudaStream_t stream) {
  const auto count = count_of(input) / static_cast<std::size_t>(ranks);
  const auto bytes = input.nbytes() / static_cast<std::size_t>(ranks);
  const auto* from = static_cast<const char*>(input.const_data_ptr());
  auto* to = static_cast<char*>(output.mutable_data_ptr());
  for (int peer = 0; peer < ranks; ++peer, from += bytes, to += bytes) {
    if (const auto code = ncclSend(from, count, type, peer, comm, stream); has_failed(code)) return code;
    if (const auto code = ncclRecv(to, count, type, peer, comm, stream); has_failed(code)) return code;
  }
  return ncclSuccess;
}

}  // namespace

template <typename Body>
auto NcclCommunicator::remembering_failure(const Body& body) {
  failure_->throw_if_any();
  try {
    return body();
  } catch (...) {
    watchdog_.fail(std::current_exception());
    failure_->throw_if_any();
    throw;
  }
}

NcclCommunicator::NcclCommunicator(std::shared_ptr<Communicator> control, const at::Device& device,
                                   CommunicatorOptions options, OnFailure on_failure, const CallOptions& set_up)
    : control_(std::move(control)),
      options_(options),
      on_failure_(std::move(on_failure)),
      stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device.index())),
      agreement_(control_),
      comm_(connect_nccl_comm(*control_, device, set_up.timeout.value_or(options.timeout))),
      watchdog_(comm_, failure_, on_failure_) {}

Work NcclCommunicator::all_reduce(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                                  const CallOptions& options) {
  const auto type = checked_in_out(*this, input, output, "all_reduce");
  check_op(type, op, "all_reduce");
  return launch({CallKind::all_reduce, count_of(input), type, op}, {input, output}, options,
                [&](ncclComm_t comm, cudaStream_t stream) {
                  return ncclAllReduce(input.const_data_ptr(), output.mutable_data_ptr(), count_of(input),
                                       to_nccl(type), to_nccl(op), comm, stream);
                });
}

Work NcclCommunicator::reduce(const at::Tensor& input, const at::Tensor& output, int root, ReduceOp op,
                              const CallOptions& options) {
  check_root(*this, root, "reduce");
  const bool is_root = rank() == root;
  const auto type = is_root ? checked_in_out(*this, input, output, "reduce") : checked_type(*this, input, "reduce");
  check_op(type, op, "reduce");
  return launch({CallKind::reduce, count_of(input), type, op, root}, {input, output}, options,
                [&](ncclComm_t comm, cudaStream_t stream) {
                  return ncclReduce(input.const_data_ptr(), is_root ? output.mutable_data_ptr() : nullptr,
                                    count_of(input), to_nccl(type), to_nccl(op), root, comm, stream);
                });
}

Work NcclCommunicator::broadcast(const at::Tensor& tensor, int root, const CallOptions& options) {
  const auto type = checked_type(*this, tensor, "broadcast");
  check_root(*this, root, "broadcast");
  return launch({.kind = CallKind::broadcast, .count = count_of(tensor), .type = type, .root = root}, {tensor}, options,
                [&](ncclComm_t comm, cudaStream_t stream) {
                  return ncclBroadcast(tensor.const_data_ptr(), tensor.mutable_data_ptr(), count_of(tensor),
                                       to_nccl(type), root, comm, stream);
                });
}

Work NcclCommunicator::all_gather(const at::Tensor& input, const at::Tensor& output, const CallOptions& options) {
  const auto type = checked_gather(*this, input, output, "all_gather");
  return launch({CallKind::all_gather, count_of(input), type}, {input, output}, options,
                [&](ncclComm_t comm, cudaStream_t stream) {
                  return ncclAllGather(input.const_data_ptr(), output.mutable_data_ptr(), count_of(input),
                                       to_nccl(type), comm, stream);
                });
}

Work NcclCommunicator::reduce_scatter(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                                      const CallOptions& options) {
  const auto type = checked_gather(*this, output, input, "reduce_scatter");
  check_op(type, op, "reduce_scatter");
  return launch({CallKind::reduce_scatter, count_of(output), type, op}, {input, output}, options,
                [&](ncclComm_t comm, cudaStream_t stream) {
                  return ncclReduceScatter(input.const_data_ptr(), output.mutable_data_ptr(), count_of(output),
                                           to_nccl(type), to_nccl(op), comm, stream);
                });
}

Work NcclCommunicator::all_to_all(const at::Tensor& input, const at::Tensor& output, const CallOptions& options) {
  const auto type = checked_parts(*this, input, output, "all_to_all");
  return launch({CallKind::all_to_all, count_of(input), type}, {input, output}, options,
                [&](ncclComm_t comm, cudaStream_t stream) {
                  return exchange_parts(input, output, to_nccl(type), world_size(), comm, stream);
                });
}

void NcclCommunicator::barrier(const CallOptions& options) {
  compare({.kind = CallKind::barrier}, deadline_of(options));
}

std::vector<std::string> NcclCommunicator::all_gather_bytes(const std::string& bytes, const CallOptions& options) {
  const auto deadline = deadline_of(options);
  compare({.kind = CallKind::all_gather_bytes}, deadline);
  return remembering_failure([&] { return control_->all_gather_bytes(bytes, until(deadline)); });
}

std::string NcclCommunicator::broadcast_bytes(const std::string& bytes, int root, const CallOptions& options) {
  check_root(*this, root, "broadcast_bytes");
  const auto deadline = deadline_of(options);
  compare({.kind = CallKind::broadcast_bytes, .root = root}, deadline);
  return remembering_failure([&] { return control_->broadcast_bytes(bytes, root, until(deadline)); });
}

std::shared_ptr<Communicator> NcclCommunicator::split(int color, int key, const CallOptions& options) {
  check_color(color);
  const auto deadline = deadline_of(options);
  compare({.kind = CallKind::split}, deadline);
  return remembering_failure([&] {
    auto control = control_->split(color, key, until(deadline));
    return std::make_shared<NcclCommunicator>(std::move(control), stream_.device(), options_, on_failure_,
                                              until(deadline));
  });
}

at::Tensor NcclCommunicator::allocate(std::int64_t elements, at::ScalarType type) {
  failure_->throw_if_any();
  checked_bytes(elements, type);
  return at::zeros({elements}, at::TensorOptions(type).device(stream_.device()));
}

void NcclCommunicator::abort(const std::string& reason, ExitCode code) noexcept {
  try {
    watchdog_.fail(std::make_exception_ptr(CommunicationError(reason)));
  } catch (...) {
    // Out of memory: the peers are notified nevertheless.
  }
  control_->abort(reason, code);
}

Work NcclCommunicator::launch(const Call& call, std::vector<at::Tensor> tensors, const CallOptions& options,
                              const Calls& calls) {
  const auto deadline = deadline_of(options);
  return remembering_failure([&] {
    const auto sequence = agreement_.next_collective(call, until(deadline));
    const c10::cuda::CUDAGuard on_device(stream_.device());
    called_.record(c10::cuda::getCurrentCUDAStream(stream_.device_index()));
    called_.block(stream_);
    try {
      const bool is_empty = tensors.front().numel() == 0;
      if (!is_empty) comm_->launch([&](ncclComm_t comm) { return calls(comm, stream_); }, deadline);
    } catch (const CommunicationError& error) {
      throw CommunicationError(text(to_string(call), " (collective number ", sequence, ") failed: ", error.what()));
    }
    auto operation = std::make_shared<NcclOperation>(call, sequence, deadline, std::move(tensors), stream_, failure_);
    watchdog_.watch(operation);
    return Work{std::move(operation)};
  });
}

void NcclCommunicator::compare(const Call& call, const Deadline& deadline) {
  remembering_failure([&] { agreement_.compare(call, until(deadline)); });
}

Deadline NcclCommunicator::deadline_of(const CallOptions& options) const {
  return Deadline::after(options.timeout.value_or(options_.timeout));
}

}  // namespace libtrain::detail
