#pragma once

#include <cstddef>
#include <cstdint>

#include <libtrain/data/image/pixel_format.hpp>

namespace libtrain::data::detail {

/// Stores (from[i] - mean[i]) * factor[i] as `type`, rounded to nearest, ties to even; for uint8 the bytes themselves.
/// A difference and a product are the same bits on every processor, which a product and a sum are not where they are
/// fused.
void normalize(const std::uint8_t* from, const float* mean, const float* factor, std::size_t count, PixelType type,
               void* to);

}  // namespace libtrain::data::detail
