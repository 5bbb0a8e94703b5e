#include <libtrain/comm/hierarchy/host_layout.hpp>

#include <algorithm>
#include <map>

namespace libtrain::detail {

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
