#pragma once

#include <string>
#include <vector>

namespace libtrain::detail {

/// The system's identity of a host. Processes can share memory if all of it is equal.
struct HostIdentity {
  std::string name;
  std::string boot;       ///< of the running kernel; empty if unknown
  std::string processes;  ///< the PID namespace

  std::string to_text() const { return name + '\n' + boot + '\n' + processes; }
};

/// The host of this process. Processes can share memory if they are in the same PID namespace of the same running
/// kernel. Host names repeat in some clusters, and containers of one host have their own names.
HostIdentity own_host();

/// Why ranks that run on one machine do not count as ranks of one host, and what to do about it; empty if there are no
/// such ranks. Element r of `hosts` is HostIdentity::to_text() of rank r, or a name that the user has given.
std::string why_apart(const std::vector<std::string>& hosts);

/// Which ranks of a group share a host.
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

  /// Whether all hosts have the same number of ranks.
  bool is_even() const;

 private:
  std::vector<std::vector<int>> members_;
  std::vector<int> host_of_;
  std::vector<int> local_rank_of_;
};

}  // namespace libtrain::detail
