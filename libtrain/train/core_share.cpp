#include <libtrain/train/core_share.hpp>

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include <libtrain/base/text.hpp>

namespace libtrain {

int fair_thread_count(const std::vector<RankCores>& ranks, int rank) {
  const auto& mine = ranks[static_cast<std::size_t>(rank)];
  double share = 0;
  for (const int core : mine.cores) {
    const auto uses = [&](const RankCores& other) { return other.host == mine.host && other.cores.contains(core); };
    share += 1.0 / static_cast<double>(std::count_if(ranks.begin(), ranks.end(), uses));
  }
  // Thirds do not add up to exactly one.
  return std::max(1, static_cast<int>(share + 1e-6));
}

RankCores my_cores() {
  RankCores result;
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  result.host = host;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &mask)) result.cores.insert(core);
    }
  }
  return result;
}

std::vector<RankCores> gather_cores(Communicator& communicator) {
  const auto mine = my_cores();
  std::vector<RankCores> all;
  for (const auto& line : communicator.all_gather_bytes(mine.host + " " + join(mine.cores, " "))) {
    std::istringstream words{line};
    RankCores rank;
    words >> rank.host;
    for (int core = 0; words >> core;) rank.cores.insert(core);
    all.push_back(std::move(rank));
  }
  return all;
}

}  // namespace libtrain
