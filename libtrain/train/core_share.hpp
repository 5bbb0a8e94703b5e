#pragma once

#include <set>
#include <string>
#include <vector>

#include <libtrain/comm/communicator.hpp>

namespace libtrain {

/// The cores a rank may run on.
struct RankCores {
  std::string host;
  std::set<int> cores;
};

/// How many threads rank `rank` should use: the sum over its cores of 1 / (ranks of the same host that may use that
/// core), rounded down, at least 1. Right for ranks bound to cores by the launcher as for ranks left to the scheduler.
int fair_thread_count(const std::vector<RankCores>& ranks, int rank);

/// The cores of this process (sched_getaffinity) and its host's name.
RankCores my_cores();

/// `my_cores` of all ranks. All ranks must call it.
std::vector<RankCores> gather_cores(Communicator& communicator);

}  // namespace libtrain
