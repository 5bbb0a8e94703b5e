#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include <libtrain/base/vector_clones.hpp>

namespace libtrain::data::detail {

// Written without branches, so that loops over them are vectorised.

/// All bits set where the float with these bits is NaN.
LIBTRAIN_INLINED std::uint32_t nan_mask(std::uint32_t bits) {
  return 0u - static_cast<std::uint32_t>(static_cast<std::int32_t>(bits & 0x7FFFFFFFu) > 0x7F800000);
}

/// IEEE 754 binary16 nearest to `value`, ties to even, infinite from 65520 on; NaN becomes a quiet one.
///
/// As fp16_ieee_from_fp32_value of M. Dukhan's FP16 library: adding a power of two that suits the exponent leaves the
/// rounding to the processor. Its products are by powers of two and exact, so that fusing them changes nothing.
LIBTRAIN_INLINED std::uint16_t half_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto magnitude = std::bit_cast<float>(bits & 0x7FFFFFFFu);
  const float scaled = magnitude * 0x1p+112f * 0x1p-110f;  // infinite from 2^16 on
  const std::uint32_t exponent = std::max((bits << 1) & 0xFF000000u, 0x71000000u);
  const auto rounded = std::bit_cast<std::uint32_t>(std::bit_cast<float>((exponent >> 1) + 0x07800000u) + scaled);
  const std::uint32_t number = ((rounded >> 13) & 0x7C00u) + (rounded & 0x0FFFu);
  const std::uint32_t nan = nan_mask(bits);
  return static_cast<std::uint16_t>(((bits >> 16) & 0x8000u) | (number & ~nan) | (0x7E00u & nan));
}

/// The upper half of a float32 after rounding to nearest, ties to even; NaN becomes a quiet one.
LIBTRAIN_INLINED std::uint16_t bfloat16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t number = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t nan = nan_mask(bits);
  return static_cast<std::uint16_t>((number & ~nan) | (0x7FC0u & nan));
}

}  // namespace libtrain::data::detail
