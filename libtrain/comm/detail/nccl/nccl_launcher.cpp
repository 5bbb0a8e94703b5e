#include <libtrain/comm/detail/nccl/nccl_launcher.hpp>

#include <atomic>
#include <cstring>
#include <utility>

#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/agreement.hpp>
#include <libtrain/comm/detail/nccl/cuda_device.hpp>
#include <libtrain/comm/detail/nccl/cuda_errors.hpp>
#include <libtrain/comm/detail/nccl/nccl_check.hpp>
#include <libtrain/comm/detail/nccl/nccl_comm.hpp>
#include <libtrain/comm/detail/nccl/nccl_settings.hpp>
#include <libtrain/comm/detail/nccl/nccl_types.hpp>
#include <libtrain/comm/detail/nccl/nccl_version.hpp>

namespace libtrain::detail {

namespace {

// The codes of cuda_errors.cpp, which is compiled without CUDA's headers, too.
static_assert(cudaErrorMemoryAllocation == 2 && cudaErrorInsufficientDriver == 35 && cudaErrorDevicesUnavailable == 46);
static_assert(cudaErrorNoDevice == 100 && cudaErrorECCUncorrectable == 214 && cudaErrorNvlinkUncorrectable == 220);
static_assert(cudaErrorIllegalAddress == 700 && cudaErrorLaunchTimeout == 702 && cudaErrorAssert == 710);
static_assert(cudaErrorLaunchFailure == 719 && cudaErrorTensorMemoryLeak == 721);
static_assert(cudaErrorSystemNotReady == 802 && cudaErrorSystemDriverMismatch == 803);

ncclUniqueId make_unique_id(Communicator& control, const CallOptions& options) {
  ncclUniqueId id{};
  const auto make = [&] {
    const auto& settings = apply_nccl_settings(nccl_versions().loaded);
    if (control.rank() != 0) return;
    static const bool has_logged = (log_info(settings), true);
    static_cast<void>(has_logged);
    const auto code = ncclGetUniqueId(&id);
    if (code != ncclSuccess) throw CommunicationError(describe_nccl(code));
  };
  run_together(control, "ncclGetUniqueId", make, options);
  const auto bytes = control.broadcast_bytes(std::string(id.internal, sizeof(id.internal)), 0, options);
  std::memcpy(id.internal, bytes.data(), sizeof(id.internal));
  return id;
}

// Connects all ranks of `control` over NCCL, each with its `device`. Throws the same error on all ranks if any of them
// fails. NCCL gets three quarters of the timeout, so that the other ranks receive this rank's error before their
// timeout.
std::shared_ptr<NcclComm> connect_nccl_comm(Communicator& control, const at::Device& device,
                                            const CallOptions& options) {
  const auto id = make_unique_id(control, options);
  // NCCL's set-up may hang if some ranks start it while others are still in the broadcast of the id.
  control.barrier(options);
  std::shared_ptr<NcclComm> comm;
  const auto connect = [&] {
    const c10::cuda::CUDAGuard on_device(device);
    throw_with_cuda_advice(control.rank(), device.index(), [&] {
      comm = std::make_shared<NcclComm>(id, control.rank(), control.world_size(), device.index());
      comm->connect(Deadline::after(options.timeout.value_or(CommunicatorOptions{}.timeout) / 4 * 3));
    });
  };
  run_together(control, "Connecting over NCCL", connect, options);
  return comm;
}

// Memory of ncclMemAlloc, registered with the communicator until one of the two ends.
class NcclMemory : public DeviceMemory {
 public:
  NcclMemory(std::shared_ptr<NcclComm> comm, void* data, void* registration)
      : comm_(std::move(comm)), data_(data), registration_(registration) {}

  ~NcclMemory() override {
    // Leaked rather than freed while it is registered.
    if (comm_->deregister(registration_) && !cuda_is_unloading()) ncclMemFree(data_);
  }

  void* data() const override { return data_; }

 private:
  std::shared_ptr<NcclComm> comm_;
  void* data_;
  void* registration_;
};

class NcclLauncher : public DeviceLauncher {
 public:
  NcclLauncher(std::shared_ptr<NcclComm> comm, const at::Device& device) : comm_(std::move(comm)), device_(device) {}

  std::string_view name() const override { return "nccl"; }
  at::Device device() const override { return device_; }

  void launch(const Call& call, const void* input, void* output, const c10::Stream& stream,
              const Deadline& deadline) override;
  std::unique_ptr<DeviceMemory> allocate(std::size_t bytes) override;

  bool is_launching() const override { return comm_->is_launching(); }

  bool can_record() const override { return true; }
  bool is_recording(const c10::Stream& stream) const override { return cuda_stream_is_recording(stream); }
  bool has_passed(const StreamMark& mark) const override {
    const c10::cuda::CUDAStreamCaptureModeGuard relaxed{cudaStreamCaptureModeRelaxed};
    return mark.is_passed();
  }
  double milliseconds_between(const StreamMark& begin, const StreamMark& end) const override {
    const c10::cuda::CUDAStreamCaptureModeGuard relaxed{cudaStreamCaptureModeRelaxed};
    return begin.milliseconds_until(end);
  }

  void enter_thread() noexcept override { comm_->enter_thread(); }
  std::string asynchronous_error() override { return comm_->asynchronous_error(); }
  std::string describe(const std::exception& error) const override { return comm_->describe(error); }
  void abort() noexcept override { comm_->abort(); }
  void close() noexcept override { comm_->close(); }
  void leave() noexcept override { comm_->leave(); }

 private:
  void refuse_registration(std::size_t bytes, const std::string& reason);

  std::shared_ptr<NcclComm> comm_;
  at::Device device_;
  std::atomic<bool> registers_ = true;
};

ncclResult_t exchange_parts(const Call& call, const void* input, void* output, int ranks, ncclComm_t comm,
                            cudaStream_t stream) {
  const auto count = call.count / static_cast<std::uint64_t>(ranks);
  const auto bytes = count * size_of(*call.type);
  const auto* from = static_cast<const char*>(input);
  auto* to = static_cast<char*>(output);
  for (int peer = 0; peer < ranks; ++peer, from += bytes, to += bytes) {
    if (const auto code = ncclSend(from, count, to_nccl(*call.type), peer, comm, stream); has_failed(code)) return code;
    if (const auto code = ncclRecv(to, count, to_nccl(*call.type), peer, comm, stream); has_failed(code)) return code;
  }
  return ncclSuccess;
}

ncclResult_t enqueue(const Call& call, const void* input, void* output, int ranks, ncclComm_t comm,
                     cudaStream_t stream) {
  const auto type = to_nccl(*call.type);
  const auto op = to_nccl(call.op.value_or(ReduceOp::sum));
  switch (call.kind) {
    case CallKind::all_reduce:
      return ncclAllReduce(input, output, call.count, type, op, comm, stream);
    case CallKind::reduce:
      return ncclReduce(input, output, call.count, type, op, *call.root, comm, stream);
    case CallKind::broadcast:
      return ncclBroadcast(input, output, call.count, type, *call.root, comm, stream);
    case CallKind::all_gather:
      return ncclAllGather(input, output, call.count, type, comm, stream);
    case CallKind::reduce_scatter:
      return ncclReduceScatter(input, output, call.count, type, op, comm, stream);
    case CallKind::all_to_all:
      return exchange_parts(call, input, output, ranks, comm, stream);
    default:
      return ncclInvalidUsage;
  }
}

void NcclLauncher::launch(const Call& call, const void* input, void* output, const c10::Stream& stream,
                          const Deadline& deadline) {
  const c10::cuda::CUDAStream in{stream};
  comm_->launch([&](ncclComm_t comm) { return enqueue(call, input, output, comm_->world_size(), comm, in.stream()); },
                deadline);
}

std::unique_ptr<DeviceMemory> NcclLauncher::allocate(std::size_t bytes) {
  if (!registers_ || comm_->world_size() == 1) return nullptr;
  const c10::cuda::CUDAGuard on_device(device_);
  void* data = nullptr;
  if (const auto code = ncclMemAlloc(&data, bytes); code != ncclSuccess) {
    refuse_registration(bytes, describe_nccl(code));
    return nullptr;
  }
  auto* const registration = comm_->register_memory(data, bytes);
  if (registration == nullptr) {
    ncclMemFree(data);
    refuse_registration(bytes, "ncclCommRegister failed");
    return nullptr;
  }
  return std::make_unique<NcclMemory>(comm_, data, registration);
}

void NcclLauncher::refuse_registration(std::size_t bytes, const std::string& reason) {
  static_cast<void>(cudaGetLastError());  // or the next CUDA call would report it
  if (!registers_.exchange(false)) return;
  log_warning(text("NCCL on rank ", comm_->rank(), " cannot allocate and register ", bytes, " bytes on ", device_, " (",
                   reason, "): this communicator uses ordinary device memory, in which long messages are slower."));
}

}  // namespace

bool cuda_stream_is_recording(const c10::Stream& stream) {
  auto status = cudaStreamCaptureStatusNone;
  C10_CUDA_CHECK(cudaStreamIsCapturing(c10::cuda::CUDAStream{stream}.stream(), &status));
  return status != cudaStreamCaptureStatusNone;
}

ConnectLauncher nccl_launcher(const at::Device& device) {
  return [device](Communicator& control, const CallOptions& set_up) {
    return std::make_shared<NcclLauncher>(connect_nccl_comm(control, device, set_up), device);
  };
}

}  // namespace libtrain::detail
