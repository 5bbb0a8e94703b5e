#include <libtrain/launch/detail/resolve.hpp>

#include <algorithm>
#include <array>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/launch/detail/host.hpp>
#include <libtrain/launch/detail/job.hpp>
#include <libtrain/launch/detail/launcher_variables.hpp>
#include <libtrain/launch/detail/slurm_lists.hpp>

namespace libtrain::detail {
namespace {

using Address = Sourced<std::optional<std::string>>;

constexpr int kAzurePort = 6105;
constexpr int kDefaultPort = 29500;

/// The host in a variable that contains one host, with or without a port.
std::optional<HostPort> read_host(const Environment& environment, std::string_view name) {
  const auto value = environment.get(name);
  if (!value) return std::nullopt;
  const auto host = parse_host_port(*value);
  if (!host) {
    throw EnvironmentError(
        text(name, " is ", in_quotes(*value), ", which is not a host name or address. Correct it, or unset it."));
  }
  return host;
}

Address master_addr(const Environment& environment) {
  const auto host = read_host(environment, "MASTER_ADDR");
  if (!host) return {};
  if (host->port) {
    throw EnvironmentError(text("MASTER_ADDR is ", in_quotes(*environment.get("MASTER_ADDR")),
                                ", which has a port. Set the port in MASTER_PORT instead."));
  }
  return {host->host, "MASTER_ADDR"};
}

Address azure_master(const Environment& environment, bool one_node) {
  constexpr std::string_view mpi_master = "AZ_BATCHAI_MPI_MASTER_NODE";
  const auto host = read_host(environment, mpi_master);
  if (host && (one_node || !is_loopback(host->host))) return {host->host, std::string{mpi_master}};
  for (const auto* name : {"AZ_BATCHAI_JOB_MASTER_NODE_IP", "AZ_BATCH_MASTER_NODE"}) {
    if (const auto found = read_host(environment, name)) return {found->host, name};
  }
  for (const auto* name : {"AZ_BATCH_HOST_LIST", "AZ_BATCH_NODE_LIST"}) {
    if (const auto list = environment.get(name)) return {parse_host_list(*list, name).front(), name};
  }
  return {};
}

Address slurm_master(const Environment& environment) {
  for (const auto* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}) {
    if (const auto list = environment.get(name)) return {parse_slurm_node_list(*list).front(), name};
  }
  return {};
}

Address find_address(const Launch& launch, const Environment& environment) {
  if (auto address = master_addr(environment); address.value) return address;
  // A single process: the host lists are those of the job that it runs in.
  if (launch.world_size.value == 1) return {"127.0.0.1", "one process"};
  const bool one_node = launch.node_count.value == 1;
  if (auto address = azure_master(environment, one_node); address.value) return address;
  if (const auto host = read_host(environment, "MASTER_IP")) return {host->host, "MASTER_IP"};
  if (auto address = slurm_master(environment); address.value) return address;
  if (one_node) return {"127.0.0.1", "one node (" + launch.node_count.source + ")"};
  return {std::nullopt, "no variable names it"};
}

Sourced<std::optional<int>> find_port(const Launch& launch, const Environment& environment) {
  if (const auto port = read_integer(environment, "MASTER_PORT", 1, 65'535)) return {port->value, port->source};
  constexpr std::array azure{"AZUREML_RUN_ID",     "AZUREML_EXPERIMENT_ID",      "AZ_BATCH_MASTER_NODE",
                             "AZ_BATCH_HOST_LIST", "AZ_BATCHAI_MPI_MASTER_NODE", "AZ_BATCHAI_TASK_INDEX"};
  if (std::any_of(azure.begin(), azure.end(), [&](const char* name) { return environment.has(name); })) {
    return {kAzurePort, "default on Azure ML"};
  }
  // Several jobs may share a node, and need different ports.
  if (launch.job.value) return {default_port_of(*launch.job.value), launch.job.source};
  return {kDefaultPort, "default"};
}

}  // namespace

void find_master(Launch& launch, const Environment& environment) {
  launch.master_address = find_address(launch, environment);
  launch.master_port = find_port(launch, environment);
}

}  // namespace libtrain::detail
