#pragma once

#include <cstddef>

#include <libtrain/comm/tcp/collective.hpp>

namespace libtrain::detail {

/// All-reduce of short messages in log2(p) exchanges of everything (Thakur, Rabenseifner and Gropp, Optimization of
/// collective communication operations in MPICH, 2005). Ranks beyond the largest power of two hand their data to a
/// partner and get the result back.
void recursive_doubling_all_reduce(const Collective& collective, const void* input, void* output, std::size_t count,
                                   const Reduction& reduction);

}  // namespace libtrain::detail
