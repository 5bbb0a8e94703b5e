#pragma once

#include <limits>
#include <set>
#include <string>
#include <vector>

#include <libtrain/comm/communicator.hpp>

namespace libtrain::detail {

/// The cores a rank may run on.
struct RankCores {
  std::string machine;  ///< identifies the running kernel, which owns the cores
  std::set<int> cores;
  /// The CPU quota of this host in cores, shared by its ranks; infinity if there is none.
  double quota = std::numeric_limits<double>::infinity();
  std::string host = {};  ///< the host name; containers of one machine may have different ones
};

/// The number of threads for rank `rank`: the sum over its cores of 1 / (ranks of the same machine that may use that
/// core), but at most an equal part of the quota, rounded down, at least 1. Works for ranks that the launcher has bound
/// to cores and for unbound ranks.
int fair_thread_count(const std::vector<RankCores>& ranks, int rank);

/// The cores and the quota of this process.
RankCores my_cores();

/// `my_cores` of all ranks. All ranks must call it.
std::vector<RankCores> gather_cores(Communicator& communicator);

}  // namespace libtrain::detail
