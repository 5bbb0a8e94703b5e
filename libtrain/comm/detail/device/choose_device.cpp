#include <libtrain/comm/detail/device/choose_device.hpp>

#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/cuda.h>

#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/environment.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/agreement.hpp>
#include <libtrain/comm/detail/device/gpu_assignment.hpp>
#include <libtrain/comm/detail/hierarchy/host_layout.hpp>
#include <libtrain/comm/detail/nccl/cuda_library.hpp>

namespace libtrain::detail {

namespace {

VisibleGpus broken(std::string problem) {
  return {.problem = std::move(problem), .is_broken = true};
}

// Those that LibTorch can use.
VisibleGpus usable_gpus() {
  const auto& gpus = visible_gpus();
  if (gpus.gpus.empty()) return gpus;
  if (const auto& problem = load_cuda_library(); !problem.empty()) {
    return broken(text("LibTorch's CUDA part cannot be loaded: ", problem));
  }
  const auto count = static_cast<std::size_t>(torch::cuda::device_count());
  if (count == gpus.gpus.size()) return gpus;
  if (!at::Context::hasCUDART()) {
    return broken(
        "LibTorch was asked for CUDA before libtrain loaded its CUDA part, and does not look for it again: call "
        "torch::manual_seed() and torch::cuda functions after run() or connect() has begun");
  }
  return broken(text("LibTorch sees ", count, " GPUs, but the driver shows ", gpus.gpus.size()));
}

RankGpus facts_of(const DeviceRequest& request, const VisibleGpus& visible) {
  RankGpus facts{.choice = request.choice,
                 .host = Environment::of_process().get("LIBTRAIN_HOST").value_or(own_host().to_text()),
                 .host_name = host_name(),
                 .local_rank = request.launch.local_rank.value,
                 .problem = visible.problem,
                 .is_broken = visible.is_broken};
  for (const auto& gpu : visible.gpus) facts.uuids.push_back(gpu.uuid);
  return facts;
}

void log_device(const DeviceRequest& request, const at::Device& device, const GpuAssignment& assignment) {
  if (!device.is_cpu()) return log_info(text("rank 0 computes on ", describe_gpu(device.index())));
  if (request.choice != DeviceChoice::automatic) return;
  const auto line = text("computing on the CPU: ", assignment.why_cpu);
  if (assignment.is_warning) return log_warning(text(line, ". Correct this, or use --device cpu."));
  log_info(line);
}

}  // namespace

at::Device choose_device(const DeviceRequest& request, Communicator& communicator, VisibleGpus (*gpus_of_process)()) {
  const CallPurpose purpose{communicator, "choosing the device"};
  const auto visible = request.choice == DeviceChoice::cpu ? VisibleGpus{} : gpus_of_process();
  std::vector<RankGpus> ranks;
  for (const auto& message : communicator.all_gather_bytes(to_message(facts_of(request, visible)))) {
    ranks.push_back(gpus_from_message(message));
  }
  const auto assignment = assign_gpus(ranks, request.reason);
  at::Device device{at::kCPU};
  if (!assignment.indices.empty()) {
    const auto index = assignment.indices[static_cast<std::size_t>(communicator.rank())];
    device = {at::kCUDA, static_cast<c10::DeviceIndex>(index)};
  }
  if (communicator.rank() == 0) log_device(request, device, assignment);
  return device;
}

at::Device choose_device(const DeviceRequest& request, Communicator& communicator) {
  const auto device = choose_device(request, communicator, usable_gpus);
  if (device.is_cpu()) return device;
  // Creates the process's context on the GPU, which fails if its memory is full or another process has it alone.
  run_together(communicator, "Choosing the device",
               [&] { c10::impl::VirtualGuardImpl(device.type()).setDevice(device); });
  return device;
}

}  // namespace libtrain::detail
