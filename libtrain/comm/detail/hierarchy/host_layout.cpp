#include <libtrain/comm/detail/hierarchy/host_layout.hpp>

#include <algorithm>
#include <map>

#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

// A name that the user has given has no boot id.
HostIdentity identity_of(const std::string& host) {
  const auto first = host.find('\n');
  const auto second = host.find('\n', first + 1);
  if (first == std::string::npos || second == std::string::npos) return {.name = host, .boot = {}, .processes = {}};
  return {.name = host.substr(0, first),
          .boot = host.substr(first + 1, second - first - 1),
          .processes = host.substr(second + 1)};
}

}  // namespace

HostIdentity own_host() {
  return {.name = host_name(), .boot = boot_id(), .processes = own_namespace("pid")};
}

std::string why_apart(const std::vector<std::string>& hosts) {
  std::map<std::string, std::size_t> first_of_boot;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto mine = identity_of(hosts[rank]);
    if (mine.boot.empty()) continue;
    const auto first = first_of_boot.try_emplace(mine.boot, rank).first->second;
    if (hosts[first] == hosts[rank]) continue;
    const bool see_each_other = identity_of(hosts[first]).processes == mine.processes;
    return text("Ranks ", first, " and ", rank, " run on one machine but cannot share memory, because their ",
                see_each_other
                    ? "host names differ. Set the same LIBTRAIN_HOST for both."
                    : "PID namespaces differ. Start the ranks of a machine in one container or pod, or give "
                      "the containers the host's PID namespace (Kubernetes: hostPID; Docker: --pid=host) and "
                      "the same LIBTRAIN_HOST.");
  }
  return {};
}

HostLayout::HostLayout(const std::vector<std::string>& hosts) {
  std::map<std::string, int> numbers;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto [found, is_new] = numbers.try_emplace(hosts[rank], static_cast<int>(members_.size()));
    if (is_new) members_.emplace_back();
    auto& members = members_[static_cast<std::size_t>(found->second)];
    host_of_.push_back(found->second);
    local_rank_of_.push_back(static_cast<int>(members.size()));
    members.push_back(static_cast<int>(rank));
  }
}

bool HostLayout::is_even() const {
  return std::all_of(members_.begin(), members_.end(),
                     [this](const auto& members) { return members.size() == members_.front().size(); });
}

}  // namespace libtrain::detail
