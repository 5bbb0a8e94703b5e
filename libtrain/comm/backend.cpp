#include <libtrain/comm/backend.hpp>

#include <algorithm>
#include <mutex>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/nccl/connect_nccl.hpp>
#include <libtrain/comm/detail/single/single_communicator.hpp>
#include <libtrain/comm/detail/staged/staged_communicator.hpp>

namespace libtrain {

namespace {

std::shared_ptr<Communicator> stage_gpus(const GpuConnectRequest& request) {
  if (request.host->world_size() == 1) return detail::single_gpu(request.device);
  return std::make_shared<detail::StagedCommunicator>(request.host, request.device);
}

// NCCL, unless it must not be used.
std::shared_ptr<Communicator> connect_gpus(const GpuConnectRequest& request) {
  const auto nccl = detail::nccl_backend();
  const auto problem = nccl.why_unavailable(Launch{});
  if (problem.empty()) return nccl.connect_gpus(request);
  if (request.host->rank() == 0 && request.host->world_size() > 1) {
    log_warning(text("Collectives of the GPUs go through host memory, which is slower than NCCL: ", problem));
  }
  return stage_gpus(request);
}

// The built-in backends. The transport between hosts depends on the launch: MPI if MPI started the ranks and the name
// allows it, else TCP. GPUs communicate over NCCL, or through host memory if another backend is asked for by name.
std::vector<Backend> built_in() {
  return {
      {.name = "auto", .connect = connect_host_memory, .connect_gpus = connect_gpus},
      {.name = "gloo", .connect = connect_host_memory, .connect_gpus = stage_gpus},  // never MPI
      {.name = "tcp", .connect = connect_host_memory, .connect_gpus = stage_gpus},   // an alias of gloo
      {.name = "mpi", .connect = connect_host_memory, .connect_gpus = stage_gpus},   // always MPI
      detail::nccl_backend(),
  };
}

struct Registry {
  std::mutex mutex;
  std::vector<Backend> backends = built_in();
};

Registry& registry() {
  static Registry instance;
  return instance;
}

auto find_in(std::vector<Backend>& backends, const std::string& name) {
  return std::ranges::find(backends, name, &Backend::name);
}

}  // namespace

void register_backend(Backend backend) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyz0123456789_";
  if (backend.name.empty() || backend.name.find_first_not_of(kAllowed) != std::string::npos) {
    throw UsageError(text("Cannot register a backend as '", backend.name,
                          "': a name consists of lower-case letters, digits and underscores. Choose another name."));
  }
  if (!backend.connect) {
    throw UsageError(text("Cannot register backend '", backend.name, "': it has no connect function. Set one."));
  }
  auto& [mutex, backends] = registry();
  const std::lock_guard lock(mutex);
  const auto found = find_in(backends, backend.name);
  if (found == backends.end()) {
    backends.push_back(std::move(backend));
  } else {
    *found = std::move(backend);
  }
}

std::vector<std::string> backend_names() {
  auto& [mutex, backends] = registry();
  const std::lock_guard lock(mutex);
  std::vector<std::string> names;
  for (const auto& backend : backends) names.push_back(backend.name);
  return names;
}

namespace detail {

Backend find_backend(const Launch& launch) {
  const auto& [name, source] = launch.backend;
  {
    auto& [mutex, backends] = registry();
    const std::lock_guard lock(mutex);
    const auto found = find_in(backends, name);
    if (found != backends.end()) return *found;
  }
  throw EnvironmentError(text("Backend '", name, "' (", source, ") is not known to this program. Use one of ",
                              join(backend_names(), ", "), "."));
}

}  // namespace detail

}  // namespace libtrain
