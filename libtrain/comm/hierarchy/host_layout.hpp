#pragma once

#include <string>
#include <vector>

namespace libtrain::detail {

/// Which ranks of a group share a host, from what each rank says of its host.
class HostLayout {
 public:
  /// `hosts[r]` identifies the host of rank r: equal exactly for ranks that can share memory.
  explicit HostLayout(const std::vector<std::string>& hosts);

  int host_count() const { return static_cast<int>(members_.size()); }

  /// Hosts are numbered by their lowest rank.
  int host_of(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }

  /// The position of a rank among the ranks of its host, in rank order.
  int local_rank_of(int rank) const { return local_rank_of_[static_cast<std::size_t>(rank)]; }

  /// The ranks of a host in ascending order.
  const std::vector<int>& members(int host) const { return members_[static_cast<std::size_t>(host)]; }

  /// Whether all hosts have equally many ranks.
  bool is_even() const;

 private:
  std::vector<std::vector<int>> members_;
  std::vector<int> host_of_;
  std::vector<int> local_rank_of_;
};

}  // namespace libtrain::detail
