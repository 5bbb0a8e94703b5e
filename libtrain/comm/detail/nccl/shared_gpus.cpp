#include <libtrain/comm/detail/nccl/shared_gpus.hpp>

#include <map>
#include <sstream>

#include <libtrain/base/text.hpp>

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
  std::map<std::string, std::vector<std::size_t>> ranks_of;
  for (std::size_t rank = 0; rank < gpus.size(); ++rank) ranks_of[gpus[rank].uuid].push_back(rank);
  std::vector<std::string> parts;
  for (const auto& [uuid, ranks] : ranks_of) {
    if (ranks.size() == 1) continue;
    const auto& gpu = gpus[ranks.front()];
    parts.push_back(text("ranks ", join(ranks, ", "), " share ", gpu.name, " ", uuid, " of host ", gpu.host));
  }
  return join(parts, "; ");
}

}  // namespace libtrain::detail
