#pragma once

#include <cstddef>

#include <libtrain/comm/tcp/collective.hpp>

namespace libtrain::detail {

/// From one rank to all, or from all to one: short messages along a binomial tree, log2(p) steps; long ones in chunks
/// along a chain of all ranks, where every connection carries the data once and all are busy at the same time. What is
/// long grows with the number of ranks, and is the same on all of them.
void broadcast_from(const Collective& collective, void* data, std::size_t bytes, int root);

/// `output` is used on `root` alone.
void reduce_to(const Collective& collective, const void* input, void* output, std::size_t count,
               const Reduction& reduction, int root);

}  // namespace libtrain::detail
