#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iomanip>
#include <iostream>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <libtrain/base/build_info.hpp>
#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/detail/openmp_waiting.hpp>
#include <libtrain/base/detail/redact.hpp>
#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/comm/detail/device/visible_gpus.hpp>
#include <libtrain/comm/detail/mpi/connect_mpi.hpp>
#include <libtrain/comm/detail/nccl/nccl_version.hpp>
#include <libtrain/launch/detail/describe.hpp>
#include <libtrain/launch/detail/launcher_variables.hpp>
#include <libtrain/launch/detail/variables.hpp>
#include <libtrain/launch/launch.hpp>
#include <libtrain/observe/detail/gpu_check.hpp>

#include <tools/common/tool.hpp>
#include <tools/info/connection_check.hpp>
#include <tools/info/gpu_host.hpp>

// libtrain-info: prints the rank that a program started in the same way would have, and the source of each value.

namespace {

using Json = nlohmann::ordered_json;

Json value_of(const std::string& value) {
  return libtrain::detail::redact(value);
}
Json value_of(int value) {
  return value;
}
template <typename T>
Json value_of(const std::optional<T>& value) {
  return value ? value_of(*value) : Json{};
}

template <typename T>
Json to_json(const libtrain::Sourced<T>& value) {
  return {{"value", value_of(value.value)}, {"source", value.source}};
}

Json to_json(const libtrain::Launch& launch) {
  Json warnings = Json::array();
  for (const auto& warning : launch.warnings) warnings.push_back(libtrain::detail::redact(warning));
  return {{"rank", to_json(launch.rank)},
          {"world_size", to_json(launch.world_size)},
          {"local_rank", to_json(launch.local_rank)},
          {"local_world_size", to_json(launch.local_world_size)},
          {"node_rank", to_json(launch.node_rank)},
          {"node_count", to_json(launch.node_count)},
          {"master_address", to_json(launch.master_address)},
          {"master_port", to_json(launch.master_port)},
          {"job", to_json(launch.job)},
          {"rendezvous", to_json(launch.rendezvous)},
          {"backend", to_json(launch.backend)},
          {"launcher", libtrain::to_string(launch.launcher)},
          {"warnings", warnings}};
}

Json describe_gpus() {
  const auto probe = libtrain::detail::probe_gpus();
  Json gpus = Json::object();
  for (const auto& gpu : probe.gpus) {
    gpus[std::to_string(gpu.index)] = {{"name", gpu.name},
                                       {"memory_bytes", gpu.memory_bytes},
                                       {"problem", gpu.problem.empty() ? Json{} : Json(gpu.problem)}};
  }
  if (!probe.why_none.empty()) gpus["none"] = probe.why_none;
  const auto nccl = libtrain::detail::nccl_versions();
  if (nccl.built != 0) gpus["nccl"] = {{"built", nccl.built}, {"loaded", nccl.loaded}};
  return gpus;
}

template <typename T>
void set_if_known(Json& object, const char* name, const std::optional<T>& value) {
  if (value) object[name] = *value;
}

Json to_json(const libtrain::tools::GpuFacts& gpu, std::optional<int> device_index) {
  Json json{{"name", gpu.name}, {"uuid", gpu.uuid}, {"pci", gpu.pci}};
  json["device_index"] = device_index ? Json(*device_index) : Json{};  // null: hidden from this process
  set_if_known(json, "memory_bytes", gpu.memory_bytes);
  set_if_known(json, "free_bytes", gpu.free_bytes);
  if (!gpu.compute_capability.empty()) json["compute_capability"] = gpu.compute_capability;
  set_if_known(json, "pcie_generation", gpu.pcie_generation);
  set_if_known(json, "max_pcie_generation", gpu.max_pcie_generation);
  set_if_known(json, "pcie_lanes", gpu.pcie_lanes);
  set_if_known(json, "max_pcie_lanes", gpu.max_pcie_lanes);
  json["nvlinks"] = gpu.nvlinks;
  set_if_known(json, "mig", gpu.mig);
  set_if_known(json, "persistence_mode", gpu.persistence);
  return json;
}

/// The GPUs of the machine, their links and adapters, from the driver and sysfs; empty if there are none.
Json to_json(const libtrain::tools::GpuHost& host) {
  Json json = Json::object();
  if (!host.nvml.driver_version.empty()) json["driver"] = host.nvml.driver_version;
  const auto& visible = libtrain::detail::visible_gpus();
  if (visible.cuda != 0) json["driver_cuda"] = visible.cuda;
  for (std::size_t index = 0; index < host.nvml.gpus.size(); ++index) {
    const auto& gpu = host.nvml.gpus[index];
    const auto found = std::ranges::find(visible.gpus, gpu.uuid, &libtrain::detail::VisibleGpu::uuid);
    std::optional<int> device_index;
    if (found != visible.gpus.end()) device_index = static_cast<int>(found - visible.gpus.begin());
    json["gpu " + std::to_string(index)] = to_json(gpu, device_index);
  }
  for (const auto& pair : host.nvml.pairs) {
    json["gpu " + std::to_string(pair.first) + " to gpu " + std::to_string(pair.second)] = pair.path;
  }
  for (const auto& port : host.ports) {
    json[port.device + " port " + std::to_string(port.port)] = {
        {"state", port.state}, {"rate", port.rate}, {"link_layer", port.link_layer}, {"pci", port.pci}};
  }
  for (const auto& path : host.paths) json[path.gpu + " to " + path.device] = path.path;
  if (!host.ports.empty()) {
    json["gpudirect_rdma"] = host.has_peermem ? "nvidia_peermem" : host.may_use_dmabuf ? "dmabuf" : "not available";
  }
  if (!host.nvml.gpus.empty() && !host.nvml.problem.empty()) json["problem"] = host.nvml.problem;
  return json;
}

/// The wait policy of idle OpenMP threads of LibTorch in a program that is linked and started like this one.
Json describe_openmp_waiting(const libtrain::Environment& environment) {
  for (const auto* name : {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}) {
    if (const auto value = environment.get(name))
      return {{"value", libtrain::detail::redact(std::string{name} + "=" + *value)}, {"source", "environment"}};
  }
  if (&libtrain_openmp_waiting != nullptr && libtrain_openmp_waiting != nullptr) {
    return {{"value", libtrain_openmp_waiting}, {"source", "libtrain"}};
  }
  return {{"value", nullptr}, {"source", "OpenMP's default"}};
}

/// Facts about this process and its host.
Json facts(const libtrain::Environment& environment, const std::optional<libtrain::Launch>& launch) {
  const auto host = libtrain::tools::read_gpu_host(libtrain::tools::load_nvml());
  libtrain::tools::JobFacts job;
  if (launch) job.local_world_size = launch->local_world_size.value;
  for (const auto& gpu : libtrain::detail::visible_gpus().gpus) job.visible_uuids.push_back(gpu.uuid);
  const auto& build = libtrain::build_info();
  const auto quota = libtrain::detail::cpu_quota();
  Json variables = Json::object();
  for (const auto name : libtrain::detail::launch_variables()) {
    if (const auto value = environment.get(name)) variables[std::string{name}] = libtrain::detail::redact(*value);
  }
  if (environment.has("LIBTRAIN_SECRET")) variables["LIBTRAIN_SECRET"] = "(not shown)";
  if (const auto path = environment.get("LIBTRAIN_SECRET_FILE")) variables["LIBTRAIN_SECRET_FILE"] = *path;
  return {{"versions",
           {{"libtrain", build.version},
            {"git_revision", build.git_revision},
            {"compiler", build.compiler},
            {"build_type", build.build_type},
            {"torch", build.torch},
            {"cuda", build.cuda},
            {"nccl", build.nccl},
            {"mpi", build.mpi},
            {"mpi_library", libtrain::detail::mpi_library()},
            {"arrow", build.arrow}}},
          {"backends", {{"compiled", build.backends}}},
          {"runtime",
           {{"host", libtrain::detail::host_name()},
            {"process_id", getpid()},
            {"usable_cores", libtrain::detail::usable_cores().size()},
            {"cpu_quota", quota ? Json(*quota) : Json{}},
            {"openmp_waiting", describe_openmp_waiting(environment)}}},
          {"gpus", describe_gpus()},
          {"gpu_host", to_json(host)},
          {"slow", libtrain::tools::find_slowness(host, job, environment)},
          {"environment", variables}};
}

std::string to_text(const Json& value) {
  if (!value.is_string()) return value.dump();
  return value.get<std::string>().empty() ? "off" : libtrain::detail::in_quotes(value.get<std::string>());
}

void print_section(const std::string& title, const Json& section) {
  std::cout << '\n' << title << '\n';
  if (section.empty()) std::cout << "  none\n";
  for (const auto& [name, value] : section.items()) std::cout << "  " << name << ' ' << to_text(value) << '\n';
}

void print(const std::optional<libtrain::Launch>& launch, const Json& facts) {
  if (launch) {
    for (const auto& line : libtrain::detail::describe(*launch)) std::cout << libtrain::detail::redact(line) << '\n';
    for (const auto& warning : launch->warnings) std::cout << "warning: " << libtrain::detail::redact(warning) << '\n';
  }
  print_section("launch variables that are set", facts.at("environment"));
  print_section("runtime", facts.at("runtime"));
  print_section("versions", facts.at("versions"));
  print_section("GPUs", facts.at("gpus"));
  if (const auto& host = facts.at("gpu_host"); !host.empty()) print_section("GPUs and adapters of this host", host);
  if (const auto& slow = facts.at("slow"); !slow.empty()) {
    std::cout << "\nWhat would make this job slow\n";
    for (const auto& line : slow) std::cout << "  " << line.get<std::string>() << '\n';
  }
  print_section("communicator backends", facts.at("backends"));
}

Json to_json(const libtrain::tools::ConnectionCheck& check) {
  Json links = Json::array();
  for (const auto& link : check.links) {
    links.push_back({{"from", link.from},
                     {"to", link.to},
                     {"ranks", link.ranks},
                     {"latency_s", link.latency_s},
                     {"there_gb_s", link.there_gb_s},
                     {"back_gb_s", link.from == link.to ? Json{} : Json(link.back_gb_s)}});
  }
  return {{"description", check.description}, {"seconds", check.seconds}, {"links", links}};
}

void print(const libtrain::tools::ConnectionCheck& check) {
  std::cout << "\nconnections\n  " << check.description << ", after " << std::fixed << std::setprecision(2)
            << check.seconds << " s\n";
  for (const auto& link : check.links) {
    const bool is_one_host = link.from == link.to;
    std::cout << "  " << libtrain::detail::in_quotes(link.from);
    if (is_one_host) {
      std::cout << ", all-reduce of " << link.ranks << " ranks: ";
    } else {
      std::cout << " and " << libtrain::detail::in_quotes(link.to) << ": ";
    }
    std::cout << std::setprecision(1) << link.latency_s * 1e6 << " us for 8 bytes, " << std::setprecision(3)
              << link.there_gb_s << " GB/s for 16 MiB";
    if (!is_one_host) std::cout << " there, " << link.back_gb_s << " GB/s back";
    std::cout << '\n';
  }
}

struct Request {
  bool as_json = false;
  bool check = false;
  double timeout_s = 60;
};

libtrain::ExitCode report(const libtrain::LaunchOptions& options, const Request& request) {
  const auto environment = libtrain::Environment::of_process();
  std::optional<libtrain::Launch> launch;
  Json json = Json::object();
  auto exit_code = libtrain::ExitCode::success;
  const auto failed = [&](const libtrain::Error& error) {
    exit_code = error.exit_code();
    json["error"] = error.what();
    std::cerr << "libtrain-info: " << error.what() << '\n';
  };
  try {
    launch = libtrain::detect_launch(environment, options);
    json = to_json(*launch);
  } catch (const libtrain::Error& error) {
    failed(error);
  }
  const auto common = facts(environment, launch);
  std::optional<libtrain::tools::ConnectionCheck> check;
  if (launch && request.check) {
    libtrain::set_log_identity(launch->rank.value, launch->world_size.value);
    const auto timeout = std::chrono::duration<double>(request.timeout_s);
    try {
      check =
          libtrain::tools::check_connections(*launch, std::chrono::duration_cast<std::chrono::milliseconds>(timeout));
    } catch (const libtrain::Error& error) {
      failed(error);
    }
  }
  if (request.as_json) {
    json.update(common);
    if (check) json["connections"] = to_json(*check);
    // A variable may contain bytes that are not UTF-8.
    std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
  } else if (!check || launch->rank.value == 0) {
    print(launch, common);
    if (check) print(*check);
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Prints the rank and world size of this process, the variables that set them, and the versions of this build."};
  libtrain::LaunchOptions options;
  Request request;
  app.add_flag("--json", request.as_json, "print one JSON object on one line instead of text");
  app.add_flag("--check", request.check,
               "connect all ranks, measure each host and each pair of hosts, and print a table on rank 0");
  app.add_option("--timeout", request.timeout_s, "time limit of --check in seconds")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 1e6));
  app.add_option("--rank", options.rank, "the rank, instead of the environment's");
  app.add_option("--world-size", options.world_size, "the number of ranks");
  app.add_option("--local-rank", options.local_rank, "the rank among those on this node");
  app.add_option("--dist-url", options.dist_url, "rendezvous address: tcp://host:port, file:///path or env://");
  app.add_option("--dist-backend", options.dist_backend, "the communicator backend");
  return libtrain::tools::run_tool("libtrain-info", [&] {
    const auto help = libtrain::tools::read_arguments(app, "libtrain-info", argc, argv);
    if (!help) return report(options, request);
    std::cout << *help;
    return libtrain::ExitCode::success;
  });
}
