#include <libtrain/comm/detail/nccl/connect_nccl.hpp>

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>

#include <libtrain/base/detail/digits.hpp>
#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/agreement.hpp>
#include <libtrain/comm/detail/device/device_communicator.hpp>
#include <libtrain/comm/detail/nccl/cuda_errors.hpp>
#include <libtrain/comm/detail/nccl/cuda_library.hpp>
#include <libtrain/comm/detail/nccl/nccl_launcher.hpp>
#include <libtrain/comm/detail/nccl/nccl_version.hpp>
#include <libtrain/comm/detail/nccl/shared_gpus.hpp>
#include <libtrain/comm/detail/single/single_communicator.hpp>
#include <libtrain/comm/detail/staged/staged_communicator.hpp>

namespace libtrain::detail {

namespace {

// In the format of nvidia-smi -L.
std::string uuid_of(const cudaDeviceProp& properties) {
  auto uuid =
      hexadecimal({reinterpret_cast<const std::uint8_t*>(properties.uuid.bytes), sizeof(properties.uuid.bytes)});
  for (const std::size_t place : {20, 16, 12, 8, 0}) uuid.insert(place, "-");
  return "GPU" + uuid;
}

// A libnccl older than the header, or of another major version, may lack functions that libtrain calls.
void require_version() {
  const auto versions = nccl_versions();
  if (versions.loaded >= versions.built && versions.loaded / 10000 == versions.built / 10000) return;
  throw EnvironmentError(text("libnccl ", versions.loaded, " was loaded, but libtrain was built with NCCL ",
                              versions.built, ". Remove libnccl ", versions.loaded,
                              " from LD_LIBRARY_PATH, or rebuild libtrain with it."));
}

void require_cuda() {
  if (const auto& problem = load_cuda_library(); !problem.empty()) {
    throw EnvironmentError(text("LibTorch's CUDA part cannot be loaded: ", problem,
                                ". Check LD_LIBRARY_PATH and the LibTorch that was installed, or use --device cpu."));
  }
}

void require_device(const at::Device& device, int rank) {
  if (!device.is_cuda()) throw EnvironmentError(text("NCCL takes CUDA devices, not ", device, "."));
  require_cuda();
  int devices = 0;
  if (const auto code = cudaGetDeviceCount(&devices); code != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    throw EnvironmentError(with_cuda_advice(
        text("This process sees no GPU: ", cudaGetErrorString(code), ". Use --dist-backend gloo to train on the CPU."),
        rank, device.index()));
  }
  if (devices == 0) {
    throw EnvironmentError(
        "This process sees no GPU. Check nvidia-smi and CUDA_VISIBLE_DEVICES, or use --dist-backend gloo.");
  }
  if (device.index() >= devices) {
    throw EnvironmentError(text(device, " does not exist: this process sees ", devices, " GPUs, counted from 0."));
  }
}

GpuIdentity identify(const at::Device& device) {
  cudaDeviceProp properties{};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device.index()));
  const auto host = host_name();
  return {.host = host.empty() ? "(unnamed)" : host,
          .uuid = uuid_of(properties),
          .name = properties.name,
          .nccl_host = Environment::of_process().get("NCCL_HOSTID").value_or(""),
          .card = text(boot_id(), ' ', properties.pciDomainID, ':', properties.pciBusID, ':', properties.pciDeviceID)};
}

// The GPU of each rank; throws on all ranks if any rank has no usable GPU.
std::vector<GpuIdentity> gather_gpus(Communicator& control, const at::Device& device, const CallOptions& set_up) {
  std::string mine;
  run_together(
      control, "Setting up NCCL",
      [&] {
        require_version();
        require_device(device, control.rank());
        throw_with_cuda_advice(control.rank(), device.index(), [&] { mine = to_line(identify(device)); });
      },
      set_up);
  std::vector<GpuIdentity> gpus;
  for (const auto& line : control.all_gather_bytes(mine, set_up)) gpus.push_back(gpu_from_line(line));
  return gpus;
}

std::shared_ptr<Communicator> connect_gpus_over_nccl(const GpuConnectRequest& request) {
  if (request.host->world_size() == 1) return single_gpu(request.device);
  // No thread may be waiting for the failed collective, and later results of the GPU are invalid: this ends the job.
  // Only MPI's abort() does not return.
  const auto end_job = [host = request.host, on_failure = request.on_failure](const std::string& reason) {
    if (on_failure) {
      on_failure(reason);
    } else {
      log_error(reason);
    }
    host->abort(reason);
    std::_Exit(static_cast<int>(ExitCode::communication));
  };
  return connect_nccl(*request.host, request.device, request.options, end_job, {.timeout = request.connect_timeout});
}

at::Device with_index(const at::Device& device) {
  const bool is_complete = !device.is_cuda() || device.has_index() || c10::cuda::device_count() == 0;
  return is_complete ? device : at::Device(at::kCUDA, c10::cuda::current_device());
}

}  // namespace

Backend nccl_backend() {
  return {.name = "nccl",
          .why_unavailable = [](const Launch&) -> std::string {
            if (Environment::of_process().get("LIBTRAIN_ENCRYPTION") != "on") return {};
            return "LIBTRAIN_ENCRYPTION is on, but NCCL sends gradients between hosts without encryption. Unset it, or "
                   "use --dist-backend gloo.";
          },
          .connect = connect_host_memory,
          .connect_gpus = connect_gpus_over_nccl,
          .needs_gpus = true};
}

std::shared_ptr<Communicator> connect_nccl(Communicator& control, const at::Device& device, CommunicatorOptions options,
                                           std::function<void(const std::string& reason)> on_failure,
                                           const CallOptions& set_up) {
  const auto indexed = with_index(device);
  const auto shared = describe_shared_gpus(gather_gpus(control, indexed, set_up));
  // A separate communicator, so that calls and failures of `control` do not affect this one.
  auto own_control = control.split(0, control.rank(), set_up);
  if (shared.empty()) {
    return std::make_shared<DeviceCommunicator>(std::move(own_control), nccl_launcher(indexed), options,
                                                std::move(on_failure), set_up);
  }
  if (control.rank() == 0) {
    log_warning(text("Several ranks share a GPU (", shared,
                     "), which NCCL does not support: collectives go through host memory, which is slow. Start as many "
                     "ranks on a host as it has GPUs."));
  }
  return std::make_shared<StagedCommunicator>(std::move(own_control), indexed);
}

std::shared_ptr<Communicator> single_gpu(const at::Device& device) {
  return std::make_shared<SingleCommunicator>(device, &cuda_stream_is_recording);
}

}  // namespace libtrain::detail
