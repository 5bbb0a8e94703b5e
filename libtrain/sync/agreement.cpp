#include <libtrain/sync/agreement.hpp>

#include <algorithm>
#include <functional>
#include <sstream>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

namespace {

std::vector<std::string> lines_of(const std::string& joined) {
  std::vector<std::string> lines;
  std::istringstream stream{joined};
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string line_or_nothing(const std::vector<std::string>& lines, std::size_t index, const std::string& unit) {
  return index < lines.size() ? lines[index] : text("nothing (it has ", lines.size(), " ", unit, ")");
}

}  // namespace

std::string describe_difference(const Agreement& agreement, const std::vector<std::vector<std::string>>& all) {
  std::size_t longest = 0;
  for (const auto& lines : all) longest = std::max(longest, lines.size());
  for (std::size_t index = 0; index < longest; ++index) {
    const auto line_of = [&](std::size_t rank) { return line_or_nothing(all[rank], index, agreement.unit); };
    const auto expected = line_of(0);
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      const auto found = line_of(rank);
      if (found == expected) continue;
      std::vector<int> ranks;
      for (std::size_t other = rank; other < all.size(); ++other) {
        if (line_of(other) == found) ranks.push_back(static_cast<int>(other));
      }
      return text(agreement.subject, " differs between ranks: rank 0 has ", expected, " where ", ranks_in_words(ranks),
                  ranks.size() == 1 ? " has " : " have ", found, ". ", agreement.advice);
    }
  }
  return {};
}

void require_agreement(const Agreement& agreement, const std::vector<std::string>& lines, Communicator& communicator) {
  const auto mine = join(lines, "\n");
  // Thousands of ranks with thousands of lines each agree by a digest; only a difference makes them show everything.
  const auto digests = communicator.all_gather_bytes(std::to_string(std::hash<std::string>{}(mine)));
  if (std::adjacent_find(digests.begin(), digests.end(), std::not_equal_to<>{}) == digests.end()) return;
  std::vector<std::vector<std::string>> all;
  for (const auto& given : communicator.all_gather_bytes(mine)) all.push_back(lines_of(given));
  throw UsageError(describe_difference(agreement, all), ErrorScope::all_ranks);
}

}  // namespace libtrain::detail
