#include <libtrain/comm/detail/nccl/shared_gpus.hpp>

#include <sstream>

#include <libtrain/base/text.hpp>
#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

std::string to_line(const GpuIdentity& gpu) {
  return text(gpu.uuid, '\t', gpu.host, '\t', gpu.name);
}

GpuIdentity gpu_from_line(const std::string& line) {
  std::istringstream stream{line};
  GpuIdentity gpu;
  std::getline(stream, gpu.uuid, '\t');
  std::getline(stream, gpu.host, '\t');
  std::getline(stream, gpu.name);
  return gpu;
}

std::string describe_shared_gpus(const std::vector<GpuIdentity>& gpus) {
  std::vector<std::string> uuids;
  for (const auto& gpu : gpus) uuids.push_back(gpu.uuid);
  std::vector<std::string> parts;
  for (const auto& [uuid, ranks] : group_ranks(uuids)) {
    if (ranks.size() == 1) continue;
    const auto& gpu = gpus[static_cast<std::size_t>(ranks.front())];
    parts.push_back(text("ranks ", join(ranks, ", "), " share ", gpu.name, " ", uuid, " of host ", gpu.host));
  }
  return join(parts, "; ");
}

}  // namespace libtrain::detail
