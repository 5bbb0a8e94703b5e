#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <libtrain/data/sampler.hpp>

namespace libtrain::data::detail {

/// Where the steps of an epoch begin: positions of its order from `from` on, and at the end `size`. A step takes
/// positions as long as their samples have at most `limit` tokens together, and at least one. `length(position)` is
/// that of a sample.
std::vector<std::uint64_t> token_step_starts(const std::function<std::uint64_t(std::uint64_t position)>& length,
                                             TokenCount count, std::uint64_t from, std::uint64_t size,
                                             std::uint64_t limit);

/// The rank of each sample of a step: the longest first, those of the same length in their order, each to the rank that
/// has the fewest tokens, the lowest of them (Graham's rule of the longest processing time, "Bounds on multiprocessing
/// timing anomalies", 1969). Hence no rank has more than the mean and (1 - 1 / ranks) of the longest sample, and with
/// at least as many samples as ranks each has one. Lengths are at least 1.
std::vector<std::uint32_t> divide_by_tokens(std::span<const std::uint32_t> lengths, std::uint64_t ranks);

/// The same for padded samples: the longest first, one to each rank in turn. Hence ranks differ by at most one sample
/// and, if their lengths are alike, hardly in padded tokens.
std::vector<std::uint32_t> assign_in_turn(std::span<const std::uint32_t> lengths, std::uint64_t ranks);

}  // namespace libtrain::data::detail
