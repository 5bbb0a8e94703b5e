#pragma once

#include <cstddef>

#include <libtrain/numeric/data_type.hpp>

namespace libtrain::detail {

/// Whether none of `count` elements of a floating `type` is NaN or infinite. One pass over the memory.
bool all_finite(const void* data, std::size_t count, DataType type);

}  // namespace libtrain::detail
