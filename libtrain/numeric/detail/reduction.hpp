#pragma once

#include <cstddef>
#include <span>

#include <libtrain/numeric/data_type.hpp>

namespace libtrain::detail {

/// outputs[o][i] = inputs[0][i] (op) inputs[1][i] (op) ... for `count` elements and every output: one pass over memory
/// for any number of inputs, at least one. The average divides by the number of inputs; throws UsageError for the
/// average of integers. Sums and products of integers wrap. 16-bit floats accumulate in float32 and are rounded once.
///
/// Inputs are combined in their order, so equal inputs give equal bits at any place and in any number of pieces. An
/// output is one of the inputs or overlaps none.
void reduce_blocks(std::span<const void* const> inputs, std::span<void* const> outputs, std::size_t count,
                   DataType type, ReduceOp op);

}  // namespace libtrain::detail
