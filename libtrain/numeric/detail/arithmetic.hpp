#pragma once

#include <cstddef>

#include <libtrain/numeric/data_type.hpp>

namespace libtrain::detail {

/// accumulator[i] = accumulator[i] (op) operand[i] for `count` elements; ReduceOp::average adds. Not for 16-bit types.
/// Compiled for several instruction sets, of which the best one is chosen when the program starts.
void combine(void* accumulator, const void* operand, std::size_t count, DataType type, ReduceOp op);

/// data[i] /= divisor, floating types only: the second half of ReduceOp::average.
void divide(void* data, std::size_t count, DataType type, int divisor);

}  // namespace libtrain::detail
