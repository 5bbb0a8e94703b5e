#include <libtrain/comm/connect.hpp>

#include <sys/resource.h>

#include <string>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/backend.hpp>
#include <libtrain/comm/detail/agreement.hpp>
#include <libtrain/comm/detail/connect_transport.hpp>
#include <libtrain/comm/detail/device/choose_device.hpp>
#include <libtrain/comm/detail/host_communicator.hpp>
#include <libtrain/comm/detail/single/single_communicator.hpp>
#include <libtrain/comm/detail/staged/staged_communicator.hpp>
#include <libtrain/comm/detail/tcp/agent_store_endpoint.hpp>

namespace libtrain {

namespace {

// Of this process, to its hard limit: a rank has one or two files open for every other rank.
void raise_open_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void require_same_ranks(const Launch& launch, const Communicator& communicator) {
  if (communicator.rank() == launch.rank.value && communicator.world_size() == launch.world_size.value) return;
  throw EnvironmentError(
      text("The launch environment gives rank ", launch.rank.value, " of ", launch.world_size.value, " (",
           launch.rank.source, ", ", launch.world_size.source, "), but its peers report rank ", communicator.rank(),
           " of ", communicator.world_size(),
           ". Start the program with the mpirun of the MPI it was built with (libtrain-info names it), with "
           "srun --mpi=pmix, or without MPI: --dist-url tcp://host:port."));
}

detail::DeviceRequest device_request(const Launch& launch, DeviceChoice choice, const Backend& backend) {
  const bool asks_backend = choice == DeviceChoice::automatic && backend.needs_gpus;
  if (!asks_backend) return {.launch = launch, .choice = choice, .reason = "--device cuda"};
  return {.launch = launch,
          .choice = DeviceChoice::cuda,
          .reason = text("backend ", backend.name, " of ", launch.backend.source)};
}

std::shared_ptr<Communicator> communicate_on_gpus(const Backend& backend, const GpuConnectRequest& request) {
  if (backend.connect_gpus) return backend.connect_gpus(request);
  if (request.host->supports(request.device)) return request.host;
  return std::make_shared<detail::StagedCommunicator>(request.host, request.device);
}

}  // namespace

std::shared_ptr<Communicator> communicate_over(std::unique_ptr<HostTransport> transport, CommunicatorOptions options) {
  return std::make_shared<detail::HostCommunicator>(std::move(transport), options);
}

std::shared_ptr<Communicator> connect_host_memory(const ConnectRequest& request) {
  const auto& launch = request.launch;
  if (launch.world_size.value == 1) return std::make_shared<detail::SingleCommunicator>();
  raise_open_file_limit();
  const WaitPolicy policy{Deadline::after(request.connect_timeout)};
  auto transport = detail::connect_transport(launch, policy, detail::open_agent_store_endpoint);
  const auto description = transport->describe();
  auto communicator = communicate_over(std::move(transport), request.options);
  detail::run_together(*communicator, "Connecting", [&] { require_same_ranks(launch, *communicator); });
  if (communicator->rank() == 0) log_info(description);
  return communicator;
}

Connection connect(const Launch& launch, const ConnectOptions& options) {
  const auto backend = detail::find_backend(launch);
  const auto problem = backend.why_unavailable ? backend.why_unavailable(launch) : std::string{};
  if (!problem.empty()) throw EnvironmentError(problem);
  if (backend.needs_gpus && options.device == DeviceChoice::cpu) {
    throw UsageError(text("Backend '", backend.name, "' (", launch.backend.source,
                          ") is for GPUs, but the device is the CPU. Use --dist-backend auto, or another --device."));
  }
  const auto timeout = options.connect_timeout.value_or(options.communicator.timeout);
  auto communicator = backend.connect({launch, options.communicator, timeout});
  const auto device = detail::choose_device(device_request(launch, options.device, backend), *communicator);
  if (!device.is_cpu()) {
    communicator = communicate_on_gpus(backend, {.host = std::move(communicator),
                                                 .device = device,
                                                 .options = options.communicator,
                                                 .connect_timeout = timeout,
                                                 .on_failure = options.on_failure});
    if (communicator->rank() == 0 && communicator->world_size() > 1) {
      log_info(text("GPUs communicate over ", communicator->backend()));
    }
  }
  return {std::move(communicator), device};
}

}  // namespace libtrain
