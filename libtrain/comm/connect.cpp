#include <libtrain/comm/connect.hpp>

#include <torch/cuda.h>

#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/hierarchy/hierarchical_transport.hpp>
#include <libtrain/comm/host_communicator.hpp>
#include <libtrain/comm/mpi/connect_mpi.hpp>
#include <libtrain/comm/nccl/connect_nccl.hpp>
#include <libtrain/comm/single/single_communicator.hpp>
#include <libtrain/comm/tcp/agent_store_place.hpp>
#include <libtrain/comm/tcp/tcp_rendezvous.hpp>
#include <libtrain/comm/tcp/tcp_transport.hpp>
#include <libtrain/launch/host.hpp>

namespace libtrain {

namespace {

void check_backend(const Launch& launch) {
  const auto& backend = launch.backend.value;
  if (backend == "auto" || backend == "gloo" || backend == "mpi" || (backend == "nccl" && has_nccl())) return;
  throw EnvironmentError(text("Backend '", backend, "' (", launch.backend.source, ") is not in this build: use auto, ",
                              "gloo or mpi", has_nccl() ? ", or nccl for GPUs." : "."));
}

bool is_on(const std::string& name, const Environment& environment, bool otherwise) {
  const auto choice = environment.get(name);
  if (choice && *choice != "on" && *choice != "off") {
    throw EnvironmentError(text(name, " is '", *choice, "'; it takes on or off."));
  }
  return choice ? *choice == "on" : otherwise;
}

// All ranks learn of a disagreement on any of them, so that none goes on alone.
void check_agreement(const Launch& launch, Communicator& communicator) {
  std::string disagreement;
  if (communicator.rank() != launch.rank.value || communicator.world_size() != launch.world_size.value) {
    disagreement =
        text("The launch environment says rank ", launch.rank.value, " of ", launch.world_size.value, " (",
             launch.rank.source, ", ", launch.world_size.source, "), but its peers say rank ", communicator.rank(),
             " of ", communicator.world_size(),
             ". Start the program with the mpirun of the MPI it was built with (libtrain-info names it), with "
             "srun --mpi=pmix, or have the ranks meet without MPI: --dist-url tcp://host:port.");
  }
  for (const auto& found : communicator.all_gather_bytes(disagreement)) {
    if (!found.empty()) throw EnvironmentError(found, ErrorScope::all_ranks);
  }
}

// The interface that the TCP backend listens on, under our own name or the one that users of gloo know.
std::string socket_interface() {
  const auto environment = Environment::of_process();
  const auto own = environment.get("LIBTRAIN_SOCKET_INTERFACE");
  return own ? *own : environment.get("GLOO_SOCKET_IFNAME").value_or("");
}

// The host of rank 0, as its peers reach it; empty where they meet in a file and nobody says.
std::string master_of(const Launch& launch) {
  constexpr std::string_view kScheme = "tcp://";
  const std::string_view url = launch.rendezvous.value;
  const auto place = url.starts_with(kScheme) ? detail::parse_host_port(url.substr(kScheme.size())) : std::nullopt;
  return place ? place->host : launch.master_address.value.value_or("");
}

std::unique_ptr<RendezvousPlace> open_place(const Launch& launch, const Environment& environment,
                                            const TcpOptions& options) {
  const auto& url = launch.rendezvous.value;
  if (url.starts_with("file://")) return open_file_place(url, options);
  const auto& master = launch.master_address.value;
  const bool is_master =
      master && url == "tcp://" + detail::join_host_port(*master, launch.master_port.value.value_or(0));
  if (is_master && environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True") {
    return open_agent_store_place(url, environment.get("TORCHELASTIC_RUN_ID").value_or(""), options);
  }
  return open_tcp_place(url);
}

std::unique_ptr<HostTransport> meet(const Launch& launch, const Patience& patience) {
  const auto environment = Environment::of_process();
  const TcpOptions options{.interface = socket_interface(),
                           .master_address = master_of(launch),
                           .encrypt = is_on("LIBTRAIN_ENCRYPTION", environment, false)};
  // Ranks of one job that nothing names have at least been started alike.
  const auto job = launch.job.value ? *launch.job.value : detail::name_of_command();
  RendezvousPlan plan{.job = job,
                      .rank = launch.rank.value,
                      .world_size = launch.world_size.value,
                      .key = detail::find_job_key(environment, job),
                      .is_one_host = launch.node_count.value == 1};
  TcpRendezvous rendezvous{open_place(launch, environment, options), std::move(plan)};
  return TcpTransport::connect(rendezvous, launch.rank.value, launch.world_size.value, options, patience);
}

// Connects all pairs of ranks somehow; those that share a host will do better.
std::unique_ptr<HostTransport> connect_world(const Launch& launch, const Patience& patience) {
  if (launch.rendezvous.value == "mpi") {
    if (!is_on("LIBTRAIN_ENCRYPTION", Environment::of_process(), false)) return connect_mpi();
    throw EnvironmentError(
        "LIBTRAIN_ENCRYPTION is on, but MPI carries what goes between these ranks: use --dist-backend gloo.");
  }
  if (launch.backend.value != "mpi") return meet(launch, patience);
  throw EnvironmentError(text("Backend mpi (", launch.backend.source,
                              ") needs ranks that MPI has started, and these are to meet at ", launch.rendezvous.value,
                              " (", launch.rendezvous.source,
                              "): start the program with mpirun, or use --dist-backend gloo."));
}

std::unique_ptr<HostTransport> share_memory(std::unique_ptr<HostTransport> world, const Patience& patience) {
  const auto environment = Environment::of_process();
  const HierarchyOptions options{.share_memory = is_on("LIBTRAIN_SHARED_MEMORY", environment, true),
                                 .host = environment.get("LIBTRAIN_HOST").value_or("")};
  return HierarchicalTransport::connect(std::move(world), options, patience);
}

std::shared_ptr<Communicator> connect_gpus(const Launch& launch, const std::shared_ptr<Communicator>& control,
                                           CommunicatorOptions options) {
  const auto visible = static_cast<int>(torch::cuda::device_count());
  const at::Device device{at::kCUDA, static_cast<c10::DeviceIndex>(device_index(launch, visible))};
  // Nobody may be waiting for the failed collective: its failure ends the job from here.
  return connect_nccl(*control, device, options, [control](const std::string& reason) {
    log_error(reason);
    control->abort(reason);
  });
}

}  // namespace

std::shared_ptr<Communicator> connect(const Launch& launch, CommunicatorOptions options,
                                      std::optional<std::chrono::milliseconds> connect_timeout) {
  check_backend(launch);
  if (launch.world_size.value == 1) return std::make_shared<SingleCommunicator>();
  const Patience patience{Deadline::after(connect_timeout.value_or(options.timeout))};
  auto transport = share_memory(connect_world(launch, patience), patience);
  const auto description = transport->describe();
  auto communicator = std::make_shared<HostCommunicator>(std::move(transport), options);
  check_agreement(launch, *communicator);
  if (communicator->rank() == 0) log_info(description);
  return launch.backend.value == "nccl" ? connect_gpus(launch, communicator, options) : communicator;
}

}  // namespace libtrain
