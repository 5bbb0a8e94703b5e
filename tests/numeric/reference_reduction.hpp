#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <libtrain/numeric/data_type.hpp>

// What reductions should give, worked out one element at a time, with the compiler's own conversions for binary16.
namespace libtrain::test {

using Bytes = std::vector<std::byte>;

inline const std::vector<DataType> kTypes = {DataType::float32,  DataType::float64, DataType::float16,
                                             DataType::bfloat16, DataType::int32,   DataType::int64,
                                             DataType::uint8};
inline const std::vector<ReduceOp> kOps = {ReduceOp::sum, ReduceOp::average, ReduceOp::minimum, ReduceOp::maximum,
                                           ReduceOp::product};

inline std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

inline float from_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

// The nearer of the two neighbours, the even one at a tie.
inline std::uint16_t to_bfloat16(float value) {
  const auto below = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
  if (!std::isfinite(value)) return std::isnan(value) ? static_cast<std::uint16_t>(below | 0x40) : below;
  const auto above = static_cast<std::uint16_t>(below + 1);
  // Past the largest finite number the next one counts as 2^128.
  const auto magnitude = [](std::uint16_t bits) {
    const auto exact = std::fabs(static_cast<double>(from_bfloat16(bits)));
    return std::isinf(exact) ? std::ldexp(1.0, 128) : exact;
  };
  const double to_below = std::fabs(static_cast<double>(value)) - magnitude(below);
  const double to_above = magnitude(above) - std::fabs(static_cast<double>(value));
  if (to_below != to_above) return to_below < to_above ? below : above;
  return below % 2 == 0 ? below : above;
}

struct ReferenceFloat16 {
  static float load(std::uint16_t bits) { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
  static std::uint16_t store(float value) { return std::bit_cast<std::uint16_t>(static_cast<_Float16>(value)); }
};
struct ReferenceBFloat16 {
  static float load(std::uint16_t bits) { return from_bfloat16(bits); }
  static std::uint16_t store(float value) { return to_bfloat16(value); }
};
template <typename T>
struct ReferenceItself {
  static T load(T value) { return value; }
  static T store(T value) { return value; }
};

template <typename W>
W combined(W a, W b, ReduceOp op) {
  if (op == ReduceOp::minimum) return std::min(a, b);
  if (op == ReduceOp::maximum) return std::max(a, b);
  if constexpr (std::is_integral_v<W>) {
    // 128 bits hold every sum and product of two; wrapping is what is left after cutting.
    using Exact = __int128_t;
    return static_cast<W>(op == ReduceOp::product ? Exact{a} * Exact{b} : Exact{a} + Exact{b});
  } else {
    return op == ReduceOp::product ? a * b : a + b;
  }
}

/// `body(Stored{}, Reference{})`: the type in memory, and how it is loaded and stored.
template <typename Body>
void with_reference(DataType type, const Body& body) {
  switch (type) {
    case DataType::float32:
      return body(float{}, ReferenceItself<float>{});
    case DataType::float64:
      return body(double{}, ReferenceItself<double>{});
    case DataType::float16:
      return body(std::uint16_t{}, ReferenceFloat16{});
    case DataType::bfloat16:
      return body(std::uint16_t{}, ReferenceBFloat16{});
    case DataType::int32:
      return body(std::int32_t{}, ReferenceItself<std::int32_t>{});
    case DataType::int64:
      return body(std::int64_t{}, ReferenceItself<std::int64_t>{});
    case DataType::uint8:
      return body(std::uint8_t{}, ReferenceItself<std::uint8_t>{});
  }
}

/// Floats between -2 and 2 that do not add up exactly; integers of all sizes.
inline Bytes sample(int rank, std::size_t count, DataType type) {
  Bytes bytes(count * size_of(type));
  with_reference(type, [&]<typename Stored, typename Reference>(Stored, Reference) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto random = mix((static_cast<std::uint64_t>(rank) << 40) + i + 1);
      using Value = decltype(Reference::load(Stored{}));
      Stored element{};
      if constexpr (std::is_integral_v<Value>) {
        element = static_cast<Stored>(random);
      } else {
        element = Reference::store(static_cast<Value>(static_cast<double>(random >> 11) * 0x1p-51 - 2.0));
      }
      std::memcpy(bytes.data() + i * sizeof(Stored), &element, sizeof(Stored));
    }
  });
  return bytes;
}

/// The inputs combined in their order.
inline Bytes reduced(const std::vector<Bytes>& inputs, DataType type, ReduceOp op) {
  Bytes result(inputs[0].size());
  with_reference(type, [&]<typename Stored, typename Reference>(Stored, Reference) {
    const auto load = [](const Bytes& bytes, std::size_t i) {
      Stored element;
      std::memcpy(&element, bytes.data() + i * sizeof(Stored), sizeof(Stored));
      return Reference::load(element);
    };
    for (std::size_t i = 0; i < result.size() / sizeof(Stored); ++i) {
      auto value = load(inputs[0], i);
      for (std::size_t k = 1; k < inputs.size(); ++k) value = combined(value, load(inputs[k], i), op);
      if (op == ReduceOp::average)
        value = static_cast<decltype(value)>(value / static_cast<decltype(value)>(inputs.size()));
      const Stored element = Reference::store(value);
      std::memcpy(result.data() + i * sizeof(Stored), &element, sizeof(Stored));
    }
  });
  return result;
}

inline std::string describe(DataType type, ReduceOp op, std::size_t count) {
  return std::string{to_string(op)} + " of " + std::to_string(count) + " " + std::string{to_string(type)};
}

}  // namespace libtrain::test
