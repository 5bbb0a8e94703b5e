#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include <libtrain/base/vector_clones.hpp>
#include <libtrain/comm/data_type.hpp>

namespace libtrain::detail {

// Enumerations, because compilers do not make vector code of structures, and without enumerators: these are the bits.
enum class Float16 : std::uint16_t {};
enum class BFloat16 : std::uint16_t {};

/// The value that elements of type T are computed with: 16-bit floats as float32, all others as they are.
template <typename T>
using Wide = std::conditional_t<std::is_enum_v<T>, float, T>;

template <typename T>
LIBTRAIN_INLINED T widen(T value) {
  return value;
}

LIBTRAIN_INLINED float widen(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

// Both directions of IEEE binary16 after F. Giesen, https://gist.github.com/rygorous/2156668: selects instead of
// branches, so that they become vector code on any processor, and right also where the program flushes denormals.
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

/// The nearest value of type T, ties to even; what is not a number stays so.
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

/// What all operations but the average do at the end.
struct Unscaled {
  template <typename W>
  static LIBTRAIN_INLINED W finish(W value, W /*inputs*/) {
    return value;
  }
};

/// Integers wrap at overflow.
struct Sum : Unscaled {
  template <typename W>
  static LIBTRAIN_INLINED W combine(W a, W b) {
    if constexpr (std::is_integral_v<W>) {
      using Unsigned = std::make_unsigned_t<W>;
      return static_cast<W>(static_cast<Unsigned>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b)));
    } else {
      return a + b;
    }
  }
};

struct Average : Sum {
  template <typename W>
  static LIBTRAIN_INLINED W finish(W sum, W inputs) {
    return static_cast<W>(sum / inputs);
  }
};

struct Product : Unscaled {
  template <typename W>
  static LIBTRAIN_INLINED W combine(W a, W b) {
    if constexpr (std::is_integral_v<W>) {
      using Unsigned = std::make_unsigned_t<W>;
      return static_cast<W>(static_cast<Unsigned>(static_cast<Unsigned>(a) * static_cast<Unsigned>(b)));
    } else {
      return a * b;
    }
  }
};

// Whoever brings a NaN, the result is NaN: a diverging rank must not be hidden by its peers.
struct Minimum : Unscaled {
  template <typename W>
  static LIBTRAIN_INLINED W combine(W a, W b) {
    return b < a || b != b ? b : a;
  }
};

struct Maximum : Unscaled {
  template <typename W>
  static LIBTRAIN_INLINED W combine(W a, W b) {
    return a < b || b != b ? b : a;
  }
};

/// Calls `body` with an element of the type that `type` names.
template <typename Body>
LIBTRAIN_INLINED void with_element(DataType type, const Body& body) {
  switch (type) {
    case DataType::float32:
      return body(float{});
    case DataType::float64:
      return body(double{});
    case DataType::float16:
      return body(Float16{});
    case DataType::bfloat16:
      return body(BFloat16{});
    case DataType::int32:
      return body(std::int32_t{});
    case DataType::int64:
      return body(std::int64_t{});
    case DataType::uint8:
      return body(std::uint8_t{});
  }
}

/// Calls `body` with the function object of `op`.
template <typename Body>
LIBTRAIN_INLINED void with_operation(ReduceOp op, const Body& body) {
  switch (op) {
    case ReduceOp::sum:
      return body(Sum{});
    case ReduceOp::average:
      return body(Average{});
    case ReduceOp::minimum:
      return body(Minimum{});
    case ReduceOp::maximum:
      return body(Maximum{});
    case ReduceOp::product:
      return body(Product{});
  }
}

}  // namespace libtrain::detail
