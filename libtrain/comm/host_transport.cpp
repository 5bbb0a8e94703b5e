#include <libtrain/comm/host_transport.hpp>

#include <algorithm>
#include <functional>
#include <map>

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
    // "3 and 4" is as short as "3 to 4".
    if (last == first + 1) --last;
    runs.push_back(last == first ? text(ranks[first]) : text(ranks[first], " to ", ranks[last]));
  }
  if (runs.size() < 2) return text(ranks.size() == 1 ? "rank " : "ranks ", join(runs, ""));
  const auto final_run = std::move(runs.back());
  runs.pop_back();
  return text("ranks ", join(runs, ", "), " and ", final_run);
}

std::string missing_ranks(std::vector<int> ranks) {
  return text(ranks_in_words(std::move(ranks)),
              " did not arrive before the deadline. Check for a stopped process, an unreachable host, or a step that "
              "is slower than the timeout.");
}

std::vector<std::pair<std::string, std::vector<int>>> group_ranks(const std::vector<std::string>& texts) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  std::map<std::string, std::size_t> indices;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const auto [found, is_new] = indices.try_emplace(texts[rank], groups.size());
    if (is_new) groups.push_back({texts[rank], {}});
    groups[found->second].second.push_back(static_cast<int>(rank));
  }
  return groups;
}

bool all_equal(const std::vector<std::string>& texts) {
  return std::ranges::adjacent_find(texts, std::not_equal_to<>{}) == texts.end();
}

void barrier(HostTransport& transport, const WaitPolicy& policy) {
  constexpr std::uint64_t kFingerprint = 0x6275696c'64206f6e;  // the same on all ranks, unlike users' calls
  if (transport.arrive({.fingerprint = kFingerprint}, policy)) return;
  throw CommunicationError(
      "The ranks called different setup operations. Call connect() and split() on every rank in the same order.",
      ErrorScope::all_ranks);
}

}  // namespace libtrain::detail
