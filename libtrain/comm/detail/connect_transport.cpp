#include <libtrain/comm/detail/connect_transport.hpp>

#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/hierarchy/hierarchical_transport.hpp>
#include <libtrain/comm/detail/mpi/connect_mpi.hpp>
#include <libtrain/comm/detail/tcp/tcp_rendezvous.hpp>
#include <libtrain/comm/detail/tcp/tcp_transport.hpp>
#include <libtrain/launch/detail/host.hpp>
#include <libtrain/launch/detail/job.hpp>

namespace libtrain::detail {

namespace {

bool is_on(const std::string& name, const Environment& environment, bool otherwise) {
  const auto choice = environment.get(name);
  if (choice && *choice != "on" && *choice != "off") {
    throw EnvironmentError(text(name, " is '", *choice, "'. Set it to on or off."));
  }
  return choice ? *choice == "on" : otherwise;
}

// The interface that the TCP backend listens on, from libtrain's own variable or that of gloo, which takes several.
std::string socket_interface() {
  const auto environment = Environment::of_process();
  const auto own = environment.get("LIBTRAIN_SOCKET_INTERFACE");
  if (own) return *own;
  const auto of_gloo = environment.get("GLOO_SOCKET_IFNAME").value_or("");
  return of_gloo.substr(0, of_gloo.find(','));
}

// The host of rank 0, as its peers reach it; empty if the rendezvous is a file and no variable names the host.
std::string master_of(const Launch& launch) {
  constexpr std::string_view kScheme = "tcp://";
  const std::string_view url = launch.rendezvous.value;
  const auto endpoint = url.starts_with(kScheme) ? parse_host_port(url.substr(kScheme.size())) : std::nullopt;
  return endpoint ? endpoint->host : launch.master_address.value.value_or("");
}

std::unique_ptr<RendezvousEndpoint> open_endpoint(const Launch& launch, const Environment& environment,
                                                  const TcpOptions& options, OpenAgentStore open_agent_store) {
  const auto& url = launch.rendezvous.value;
  if (url.starts_with("file://")) return open_file_endpoint(url, options);
  const auto& master = launch.master_address.value;
  const bool is_master = master && url == "tcp://" + join_host_port(*master, launch.master_port.value.value_or(0));
  if (is_master && environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True") {
    if (open_agent_store != nullptr) {
      return open_agent_store(url, environment.get("TORCHELASTIC_RUN_ID").value_or(""), options);
    }
    // Rank 0 is on the agent's host; the port follows from the job.
    return open_tcp_endpoint("tcp://" + join_host_port(*master, default_port_of(launch.job.value.value_or(""))));
  }
  return open_tcp_endpoint(url);
}

std::unique_ptr<HostTransport> connect_tcp(const Launch& launch, const WaitPolicy& policy,
                                           OpenAgentStore open_agent_store) {
  const auto environment = Environment::of_process();
  const TcpOptions options{.interface = socket_interface(),
                           .master_address = master_of(launch),
                           .encrypt = is_on("LIBTRAIN_ENCRYPTION", environment, false)};
  // Without a name of the job: its ranks have most likely been started with the same arguments.
  const auto command = own_command();
  const auto job = launch.job.value ? *launch.job.value : text("a job of ", command.program);
  // The rendezvous file contains its own secret.
  auto key =
      launch.rendezvous.value.starts_with("file://") ? JobKey{.key = open_key(job)} : find_job_key(environment, job);
  if (launch.rank.value == 0 && !key.warning.empty()) log_warning(key.warning);
  RendezvousPlan plan{
      .job = job,
      .arguments = launch.job.value ? 0 : command.arguments + static_cast<unsigned>(launch.world_size.value),
      .rank = launch.rank.value,
      .world_size = launch.world_size.value,
      .key = std::move(key),
      .is_one_host = launch.node_count.value == 1,
      .requires_key = options.encrypt,
      .hosts = launch.hosts};
  TcpRendezvous rendezvous{open_endpoint(launch, environment, options, open_agent_store), std::move(plan)};
  return TcpTransport::connect(rendezvous, launch.rank.value, launch.world_size.value, options, policy);
}

// Connects all pairs of ranks over MPI or TCP; ranks that share a host use shared memory later.
std::unique_ptr<HostTransport> connect_world(const Launch& launch, const WaitPolicy& policy,
                                             OpenAgentStore open_agent_store) {
  if (launch.rendezvous.value == "mpi") {
    if (!is_on("LIBTRAIN_ENCRYPTION", Environment::of_process(), false)) return connect_mpi(policy.deadline);
    throw EnvironmentError(
        "LIBTRAIN_ENCRYPTION is on, but these ranks communicate over MPI, which libtrain does not encrypt. Use "
        "--dist-backend gloo.");
  }
  if (launch.backend.value != "mpi") return connect_tcp(launch, policy, open_agent_store);
  throw EnvironmentError(text("Backend mpi (", launch.backend.source,
                              ") needs ranks started by MPI, but these ranks use the rendezvous ",
                              launch.rendezvous.value, " (", launch.rendezvous.source,
                              "). Start the program with mpirun, or use --dist-backend gloo."));
}

}  // namespace

std::unique_ptr<HostTransport> connect_transport(const Launch& launch, const WaitPolicy& policy,
                                                 OpenAgentStore open_agent_store) {
  const auto environment = Environment::of_process();
  const HierarchyOptions options{.share_memory = is_on("LIBTRAIN_SHARED_MEMORY", environment, true),
                                 .host = environment.get("LIBTRAIN_HOST").value_or("")};
  return HierarchicalTransport::connect(connect_world(launch, policy, open_agent_store), options, policy);
}

}  // namespace libtrain::detail
