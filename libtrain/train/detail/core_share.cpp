#include <libtrain/train/detail/core_share.hpp>

#include <algorithm>
#include <charconv>

#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

int fair_thread_count(const std::vector<RankCores>& ranks, int rank) {
  const auto& mine = ranks[static_cast<std::size_t>(rank)];
  double share = 0;
  for (const int core : mine.cores) {
    const auto uses = [&](const RankCores& other) {
      return other.machine == mine.machine && other.cores.contains(core);
    };
    share += 1.0 / static_cast<double>(std::count_if(ranks.begin(), ranks.end(), uses));
  }
  const auto neighbours = std::count_if(ranks.begin(), ranks.end(), [&](const auto& other) {
    return other.machine == mine.machine && other.host == mine.host;
  });
  share = std::min(share, mine.quota / static_cast<double>(neighbours));
  // Three times 1.0 / 3 may be less than one.
  return std::max(1, static_cast<int>(share + 1e-6));
}

RankCores my_cores() {
  RankCores result{.machine = machine_id(), .cores = usable_cores(), .host = host_name()};
  if (const auto quota = cpu_quota()) result.quota = *quota;
  return result;
}

std::vector<RankCores> gather_cores(Communicator& communicator) {
  const auto mine = my_cores();
  std::vector<RankCores> all;
  for (const auto& line :
       communicator.all_gather_bytes(text(mine.machine, " ", mine.host, " ", mine.quota, " ", join(mine.cores, " ")))) {
    InputText words{line};
    RankCores rank;
    std::string quota;  // streams can write infinity, but cannot read it
    words >> rank.machine >> rank.host >> quota;
    std::from_chars(quota.data(), quota.data() + quota.size(), rank.quota);
    for (int core = 0; words >> core;) rank.cores.insert(core);
    all.push_back(std::move(rank));
  }
  return all;
}

}  // namespace libtrain::detail
