#include <tools/checkpoint/values.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include <libtrain/numeric/detail/float16.hpp>

namespace libtrain::checkpoint_tool {

namespace {

using detail::BFloat16;
using detail::Float16;

// Calls `body` with a value of the type; with a std::byte for types that have none.
template <typename Body>
auto with_value(ElementType type, const Body& body) {
  switch (type) {
    case ElementType::boolean:
    case ElementType::uint8:
      return body(std::uint8_t{});
    case ElementType::int8:
      return body(std::int8_t{});
    case ElementType::int16:
      return body(std::int16_t{});
    case ElementType::uint16:
      return body(std::uint16_t{});
    case ElementType::float16:
      return body(Float16{});
    case ElementType::bfloat16:
      return body(BFloat16{});
    case ElementType::int32:
      return body(std::int32_t{});
    case ElementType::uint32:
      return body(std::uint32_t{});
    case ElementType::float32:
    case ElementType::complex64:
      return body(float{});
    case ElementType::float64:
    case ElementType::complex128:
      return body(double{});
    case ElementType::int64:
      return body(std::int64_t{});
    case ElementType::uint64:
      return body(std::uint64_t{});
    case ElementType::float4:
    case ElementType::float6_e2m3:
    case ElementType::float6_e3m2:
    case ElementType::float8_e5m2:
    case ElementType::float8_e4m3:
    case ElementType::float8_e8m0:
    case ElementType::float8_e4m3fnuz:
    case ElementType::float8_e5m2fnuz:
      break;
  }
  return body(std::byte{});
}

template <typename T>
constexpr bool kHasFractions = std::is_floating_point_v<T> || std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

template <typename T>
T load(std::span<const std::byte> from, std::size_t position) {
  T value;
  std::memcpy(&value, &from[position * sizeof value], sizeof value);
  return value;
}

// Differences of 64-bit integers are exact.
template <typename T>
using Exact = std::conditional_t<std::is_integral_v<T> && sizeof(T) == 8, long double, double>;

template <typename Real>
void measure(Real first, Real second, Difference& difference) {
  if (!std::isfinite(first) || !std::isfinite(second)) {
    ++difference.not_finite;
    return;
  }
  const Real absolute = std::abs(first - second);
  const Real relative = absolute == 0 ? 0 : absolute / std::max(std::abs(first), std::abs(second));
  difference.largest_absolute = std::max(difference.largest_absolute.value_or(0), static_cast<double>(absolute));
  difference.largest_relative = std::max(difference.largest_relative.value_or(0), static_cast<double>(relative));
}

// To the nearest float32 whose last bit is 1, unless the value is a float32. Rounding that again, to 16 bits, gives
// what rounding once would give.
float round_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(value)) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::abs(static_cast<double>(nearest)) > std::abs(value)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

template <typename T>
T round_to(double value) {
  if constexpr (std::is_enum_v<T>) {
    return detail::narrow<T>(round_to_odd(value));
  } else {
    return static_cast<T>(value);
  }
}

// Calls `body` with each value of a type that has fractions, and its position.
template <typename Body>
void for_each_value(ElementType type, std::span<const std::byte> from, const Body& body) {
  with_value(type, [&]<typename T>(T) {
    if constexpr (kHasFractions<T>) {
      for (std::size_t i = 0; i < from.size() / sizeof(T); ++i) {
        body(i, static_cast<double>(detail::widen(load<T>(from, i))));
      }
    }
  });
}

}  // namespace

bool has_fractions(ElementType type) {
  return with_value(type, []<typename T>(T) { return kHasFractions<T>; });
}

bool is_complex(ElementType type) {
  return type == ElementType::complex64 || type == ElementType::complex128;
}

bool is_scaled(ElementType type) {
  return with_value(type, []<typename T>(T) { return std::is_same_v<T, std::byte>; });
}

std::uint64_t count_values(ElementType type, std::uint64_t bytes) {
  return bytes / with_value(type, []<typename T>(T) { return sizeof(T); });
}

Difference difference_between(ElementType type, std::span<const std::byte> first, std::span<const std::byte> second) {
  Difference difference;
  if (first.empty() || std::memcmp(first.data(), second.data(), first.size()) == 0) return difference;
  with_value(type, [&]<typename T>(T) {
    for (std::size_t i = 0; i < first.size() / sizeof(T); ++i) {
      if (std::memcmp(&first[i * sizeof(T)], &second[i * sizeof(T)], sizeof(T)) == 0) continue;
      if (difference.count++ == 0) difference.first = i;
      if constexpr (!std::is_same_v<T, std::byte>) {
        measure(static_cast<Exact<T>>(detail::widen(load<T>(first, i))),
                static_cast<Exact<T>>(detail::widen(load<T>(second, i))), difference);
      }
    }
  });
  return difference;
}

std::vector<double> read_values(ElementType type, std::span<const std::byte> from) {
  std::vector<double> values(count_values(type, from.size()));
  for_each_value(type, from, [&](std::size_t i, double value) { values[i] = value; });
  return values;
}

void add_values(ElementType type, std::span<const std::byte> from, std::span<double> sums) {
  for_each_value(type, from, [&](std::size_t i, double value) { sums[i] += value; });
}

std::uint64_t store_values(std::span<const double> values, ElementType type, std::vector<std::byte>& to) {
  std::uint64_t overflows = 0;
  with_value(type, [&]<typename T>(T) {
    if constexpr (kHasFractions<T>) {
      to.resize(values.size() * sizeof(T));
      for (std::size_t i = 0; i < values.size(); ++i) {
        const T value = round_to<T>(values[i]);
        if (std::isfinite(values[i]) && !std::isfinite(detail::widen(value))) ++overflows;
        std::memcpy(&to[i * sizeof value], &value, sizeof value);
      }
    }
  });
  return overflows;
}

}  // namespace libtrain::checkpoint_tool
