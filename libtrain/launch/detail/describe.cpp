#include <libtrain/launch/detail/describe.hpp>

#include <libtrain/base/text.hpp>

namespace libtrain::detail {
namespace {

std::string number(const std::optional<int>& value) {
  return value ? std::to_string(*value) : "?";
}

std::string sources(const std::string& first, const std::string& second) {
  return first == second ? text(" (", first, ")") : text(" (", first, ", ", second, ")");
}

}  // namespace

std::vector<std::string> describe(const Launch& launch) {
  std::vector<std::string> lines;
  lines.push_back(text("launcher ", to_string(launch.launcher)));
  lines.push_back(text("rank ", launch.rank.value, " of ", launch.world_size.value,
                       sources(launch.rank.source, launch.world_size.source)));
  lines.push_back(text("local rank ", number(launch.local_rank.value), " of ", number(launch.local_world_size.value),
                       sources(launch.local_rank.source, launch.local_world_size.source)));
  lines.push_back(text("node ", number(launch.node_rank.value), " of ", number(launch.node_count.value),
                       sources(launch.node_rank.source, launch.node_count.source)));
  lines.push_back(text("master ", launch.master_address.value.value_or("?"), " port ", number(launch.master_port.value),
                       sources(launch.master_address.source, launch.master_port.source)));
  lines.push_back(text("job ", launch.job.value.value_or("?"), " (", launch.job.source, ")"));
  lines.push_back(text("rendezvous ", launch.rendezvous.value, " (", launch.rendezvous.source, ")"));
  lines.push_back(text("backend ", launch.backend.value, " (", launch.backend.source, ")"));
  return lines;
}

}  // namespace libtrain::detail
