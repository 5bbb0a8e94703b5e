#include <libtrain/comm/host_transport.hpp>

#include <algorithm>

#include <libtrain/base/text.hpp>

namespace libtrain {

std::string HostTransport::describe() const {
  return text(world_size(), " ranks over ", name());
}

}  // namespace libtrain

namespace libtrain::detail {

std::string ranks_in_words(std::vector<int> ranks) {
  std::ranges::sort(ranks);
  std::vector<std::string> runs;
  for (std::size_t first = 0, last = 0; first < ranks.size(); first = last + 1) {
    for (last = first; last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1;) ++last;
    // Two neighbours are as short one by one.
    if (last == first + 1) --last;
    runs.push_back(last == first ? text(ranks[first]) : text(ranks[first], " to ", ranks[last]));
  }
  if (runs.size() < 2) return text(ranks.size() == 1 ? "rank " : "ranks ", join(runs, ""));
  const auto final_run = std::move(runs.back());
  runs.pop_back();
  return text("ranks ", join(runs, ", "), " and ", final_run);
}

void meet(HostTransport& transport, const WaitPolicy& policy) {
  constexpr std::uint64_t kFingerprint = 0x6275696c'64206f6e;  // the same on all ranks, unlike users' calls
  if (transport.arrive({.fingerprint = kFingerprint}, policy)) return;
  throw CommunicationError("The ranks are at different points of the program: every rank must connect and split alike.",
                           ErrorScope::all_ranks);
}

std::string missing_ranks(std::vector<int> ranks) {
  return text(ranks_in_words(std::move(ranks)),
              " did not arrive before the deadline: stopped, unreachable or far behind.");
}

}  // namespace libtrain::detail
