#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include <libtrain/base/detail/vector_clones.hpp>

namespace libtrain::detail {

// Enumerations of the bits, without enumerators: compilers do not vectorise structures.
enum class Float16 : std::uint16_t {};
enum class BFloat16 : std::uint16_t {};

/// The type in which elements of type T are computed: float32 for 16-bit floats, T for all others.
template <typename T>
using Wide = std::conditional_t<std::is_enum_v<T>, float, T>;

template <typename T>
LIBTRAIN_INLINED T widen(T value) {
  return value;
}

LIBTRAIN_INLINED float widen(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

// Both directions of IEEE binary16 after F. Giesen, https://gist.github.com/rygorous/2156668: with selects instead of
// branches, so that they are vectorised on any processor, and correct also if the program flushes denormals.
LIBTRAIN_INLINED float widen(Float16 value) {
  constexpr std::uint32_t kExponent = 0x7c00u << 13;
  constexpr std::uint32_t kRebias = (127u - 15u) << 23;
  const auto half = static_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = (half & 0x7fffu) << 13;
  const std::uint32_t exponent = magnitude & kExponent;
  const std::uint32_t normal = magnitude + kRebias;
  const std::uint32_t infinite = normal + ((128u - 16u) << 23);
  const std::uint32_t denormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(normal + (1u << 23)) - std::bit_cast<float>(113u << 23));
  const std::uint32_t bits = exponent == kExponent ? infinite : exponent == 0 ? denormal : normal;
  return std::bit_cast<float>(bits | (half & 0x8000u) << 16);
}

/// The nearest value of type T, ties to even; NaN stays NaN.
template <typename T>
LIBTRAIN_INLINED T narrow(Wide<T> value) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const std::uint32_t quiet_nan = (bits >> 16) | 0x40u;
    return static_cast<T>((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
  } else if constexpr (std::is_same_v<T, Float16>) {
    constexpr std::uint32_t kDenormalMagic = ((127u - 15u) + (23u - 10u) + 1u) << 23;
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    const std::uint32_t normal = (magnitude - ((127u - 15u) << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    const std::uint32_t denormal =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(kDenormalMagic)) -
        kDenormalMagic;
    const std::uint32_t beyond = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    const std::uint32_t rounded = magnitude < (113u << 23) ? denormal : normal;
    const std::uint32_t chosen = magnitude >= ((127u + 16u) << 23) ? beyond : rounded;
    return static_cast<T>(chosen | (bits & 0x80000000u) >> 16);
  } else {
    return value;
  }
}

}  // namespace libtrain::detail
