#include <libtrain/comm/detail/nccl/shared_gpus.hpp>

#include <sstream>

#include <libtrain/base/text.hpp>
#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

std::string to_line(const GpuIdentity& gpu) {
  return text(gpu.uuid, '\t', gpu.host, '\t', gpu.name, '\t', gpu.nccl_host);
}

GpuIdentity gpu_from_line(const std::string& line) {
  std::istringstream stream{line};
  GpuIdentity gpu;
  std::getline(stream, gpu.uuid, '\t');
  std::getline(stream, gpu.host, '\t');
  std::getline(stream, gpu.name, '\t');
  std::getline(stream, gpu.nccl_host);
  return gpu;
}

std::string describe_shared_gpus(const std::vector<GpuIdentity>& gpus) {
  std::vector<std::string> identities;
  for (const auto& gpu : gpus) identities.push_back(text(gpu.uuid, '\t', gpu.nccl_host));
  std::vector<std::string> parts;
  for (const auto& [identity, ranks] : group_ranks(identities)) {
    if (ranks.size() == 1) continue;
    const auto& gpu = gpus[static_cast<std::size_t>(ranks.front())];
    parts.push_back(text("ranks ", join(ranks, ", "), " share ", gpu.name, " ", gpu.uuid, " of host ", gpu.host));
  }
  return join(parts, "; ");
}

}  // namespace libtrain::detail
