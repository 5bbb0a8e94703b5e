#pragma once

#include <cstddef>

#include <libtrain/numeric/data_type.hpp>

namespace libtrain::detail {

/// Parts of norms, in double, of `count` floating numbers; NaN if one of them is. Their bits depend only on the numbers
/// and on `count`, not on the processor or the place in memory; they do depend on how values are divided into pieces.
/// Throw UsageError for integers.
double sum_of_squares(const void* values, std::size_t count, DataType type);
double sum_of_magnitudes(const void* values, std::size_t count, DataType type);
double largest_magnitude(const void* values, std::size_t count, DataType type);

}  // namespace libtrain::detail
