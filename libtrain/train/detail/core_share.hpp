#pragma once

#include <limits>
#include <set>
#include <string>
#include <vector>

#include <libtrain/comm/communicator.hpp>

namespace libtrain::detail {

/// The cores a rank may run on.
struct RankCores {
  std::string machine;  ///< whose cores these are: the running kernel
  std::set<int> cores;
  /// How many cores' worth of time the ranks of this host may use together; infinite where nothing limits them.
  double quota = std::numeric_limits<double>::infinity();
  std::string host = {};  ///< the name that a container may have of its own
};

/// How many threads rank `rank` should use: the sum over its cores of 1 / (ranks of the same machine that may use that
/// core), but no more than an equal part of the quota, rounded down, at least 1. Right for ranks bound to cores by the
/// launcher as for ranks left to the scheduler.
int fair_thread_count(const std::vector<RankCores>& ranks, int rank);

/// What this process may use, and where.
RankCores my_cores();

/// `my_cores` of all ranks. All ranks must call it.
std::vector<RankCores> gather_cores(Communicator& communicator);

}  // namespace libtrain::detail
