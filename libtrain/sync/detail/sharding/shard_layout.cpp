#include <libtrain/sync/detail/sharding/shard_layout.hpp>

#include <algorithm>

namespace libtrain::detail {

namespace {

// The intersection of the `count` elements from `begin` on and the `others` from `other` on.
OwnedRun overlap(std::int64_t begin, std::int64_t count, std::int64_t other, std::int64_t others) {
  const auto first = std::max(begin, other);
  const auto end = std::min(begin + count, other + others);
  return {.begin = first, .count = std::max(end - first, std::int64_t{0})};
}

}  // namespace

ShardLayout::ShardLayout(std::int64_t elements, int rank, int world_size)
    : elements_(elements), part_(elements / world_size), part_begin_(part_ * rank), scattered_(part_ * world_size) {}

std::array<OwnedRun, 2> ShardLayout::owned_in(std::int64_t begin, std::int64_t count) const {
  auto of_part = overlap(begin, count, part_begin_, part_);
  of_part.in_state = of_part.begin - part_begin_;
  auto of_rest = overlap(begin, count, scattered_, rest());
  of_rest.in_state = part_ + (of_rest.begin - scattered_);
  return {of_part, of_rest};
}

std::optional<std::int64_t> ShardLayout::foreign_in(std::int64_t begin, std::int64_t count) const {
  const auto end = std::min(begin + count, scattered_);
  const auto part_end = part_begin_ + part_;
  const bool begins_in_part = begin >= part_begin_ && begin < part_end;
  const auto candidate = begins_in_part ? part_end : begin;
  if (candidate < end) return candidate;
  return {};
}

}  // namespace libtrain::detail
