#include <libtrain/data/detail/token_steps.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <queue>
#include <utility>

namespace libtrain::data::detail {

namespace {

std::vector<std::uint32_t> longest_first(std::span<const std::uint32_t> lengths) {
  std::vector<std::uint32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), std::uint32_t{0});
  std::ranges::stable_sort(order, std::greater<>{}, [&](std::uint32_t sample) { return lengths[sample]; });
  return order;
}

}  // namespace

std::vector<std::uint64_t> token_step_starts(const std::function<std::uint64_t(std::uint64_t position)>& length,
                                             TokenCount count, std::uint64_t from, std::uint64_t size,
                                             std::uint64_t limit) {
  std::vector<std::uint64_t> starts{from};
  std::uint64_t tokens = 0;
  std::uint64_t longest = 0;
  for (std::uint64_t position = from; position < size; ++position) {
    const std::uint64_t added = length(position);
    const std::uint64_t samples = position - starts.back();
    tokens = count == TokenCount::packed ? tokens + added : (samples + 1) * std::max(longest, added);
    longest = std::max(longest, added);
    if (tokens > limit && samples > 0) {
      starts.push_back(position);
      tokens = added;
      longest = added;
    }
  }
  if (starts.back() < size) starts.push_back(size);
  return starts;
}

std::vector<std::uint32_t> divide_by_tokens(std::span<const std::uint32_t> lengths, std::uint64_t ranks) {
  using TokensOfRank = std::pair<std::uint64_t, std::uint32_t>;
  std::priority_queue<TokensOfRank, std::vector<TokensOfRank>, std::greater<>> emptiest;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) emptiest.emplace(0, rank);
  std::vector<std::uint32_t> rank_of(lengths.size());
  for (const std::uint32_t sample : longest_first(lengths)) {
    const auto [tokens, rank] = emptiest.top();
    emptiest.pop();
    rank_of[sample] = rank;
    emptiest.emplace(tokens + lengths[sample], rank);
  }
  return rank_of;
}

std::vector<std::uint32_t> assign_in_turn(std::span<const std::uint32_t> lengths, std::uint64_t ranks) {
  std::vector<std::uint32_t> rank_of(lengths.size());
  std::uint64_t assigned = 0;
  for (const std::uint32_t sample : longest_first(lengths))
    rank_of[sample] = static_cast<std::uint32_t>(assigned++ % ranks);
  return rank_of;
}

}  // namespace libtrain::data::detail
