#include <libtrain/comm/detail/nccl/shared_gpus.hpp>

#include <sstream>

#include <libtrain/base/text.hpp>
#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

std::string to_line(const GpuIdentity& gpu) {
  return text(gpu.uuid, '\t', gpu.host, '\t', gpu.name, '\t', gpu.nccl_host, '\t', gpu.card);
}

GpuIdentity gpu_from_line(const std::string& line) {
  std::istringstream stream{line};
  GpuIdentity gpu;
  std::getline(stream, gpu.uuid, '\t');
  std::getline(stream, gpu.host, '\t');
  std::getline(stream, gpu.name, '\t');
  std::getline(stream, gpu.nccl_host, '\t');
  std::getline(stream, gpu.card);
  return gpu;
}

std::string describe_shared_gpus(const std::vector<GpuIdentity>& gpus) {
  std::vector<std::string> by_uuid;
  std::vector<std::string> by_card;
  for (const auto& gpu : gpus) {
    by_uuid.push_back(text(gpu.uuid, '\t', gpu.nccl_host));
    by_card.push_back(gpu.card.empty() ? by_uuid.back() : text(gpu.host, '\t', gpu.card, '\t', gpu.nccl_host));
  }
  for (const auto& identities : {by_uuid, by_card}) {
    std::vector<std::string> parts;
    for (const auto& [identity, ranks] : group_ranks(identities)) {
      if (ranks.size() == 1) continue;
      const auto& gpu = gpus[static_cast<std::size_t>(ranks.front())];
      const bool are_slices = gpu.uuid != gpus[static_cast<std::size_t>(ranks[1])].uuid;
      parts.push_back(text("ranks ", join(ranks, ", "), are_slices ? " have slices of " : " share ", gpu.name, " ",
                           are_slices ? gpu.card : gpu.uuid, " of host ", gpu.host));
    }
    if (!parts.empty()) return join(parts, "; ");
  }
  return {};
}

}  // namespace libtrain::detail
