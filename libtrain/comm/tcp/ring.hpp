#pragma once

#include <cstddef>

#include <libtrain/comm/tcp/collective.hpp>

namespace libtrain::detail {

/// Each rank sends to the next one and receives from the one before, so that every connection carries the least that
/// is possible: 2 (p - 1) / p of the data for an all-reduce among p ranks, half of that for the others (Patarasuk and
/// Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009). A piece moves on as soon as it
/// is combined. Every element is combined along one path around the ring, so all ranks get the same bits.
void ring_all_reduce(const Collective& collective, const void* input, void* output, std::size_t count,
                     const Reduction& reduction);

/// `count` elements for each rank.
void ring_reduce_scatter(const Collective& collective, const void* input, void* output, std::size_t count,
                         const Reduction& reduction);

/// `bytes` bytes of each rank.
void ring_all_gather(const Collective& collective, const void* input, void* output, std::size_t bytes);

}  // namespace libtrain::detail
