#include <tools/checkpoint/values.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include <tests/support/fresh_seed.hpp>

namespace libtrain::checkpoint_tool {
namespace {

constexpr std::uint16_t kLargestFloat16 = 0x7bff;
constexpr std::uint16_t kLargestBFloat16 = 0x7f7f;

template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T>& elements) {
  std::vector<std::byte> bytes(elements.size() * sizeof(T));
  std::memcpy(bytes.data(), elements.data(), bytes.size());
  return bytes;
}

template <typename T>
Difference difference(ElementType type, const std::vector<T>& first, const std::vector<T>& second) {
  return difference_between(type, bytes_of(first), bytes_of(second));
}

// The element that a value becomes.
std::uint16_t stored(double value, ElementType type) {
  std::vector<std::byte> bytes;
  store_values(std::vector{value}, type, bytes);
  std::uint16_t element = 0;
  EXPECT_EQ(bytes.size(), sizeof element);
  std::memcpy(&element, bytes.data(), sizeof element);
  return element;
}

// The values of the elements 0, 1, ..., `largest`, which ascend.
std::vector<double> all_values(ElementType type, std::uint16_t largest) {
  std::vector<std::uint16_t> elements;
  for (unsigned element = 0; element <= largest; ++element) elements.push_back(static_cast<std::uint16_t>(element));
  return read_values(type, bytes_of(elements));
}

TEST(CheckpointValues, AreRoundedOnce) {
  // To float32 first, this would be 1 + 2^-11, in the middle between 1 and its successor, and then 1.
  EXPECT_EQ(stored(1 + 0x1p-11 + 0x1p-40, ElementType::float16), 0x3c01);
  EXPECT_EQ(stored(1 + 0x1p-11, ElementType::float16), 0x3c00);
  EXPECT_EQ(stored(-1 - 0x1p-8 - 0x1p-50, ElementType::bfloat16), 0xbf81);
  EXPECT_EQ(stored(-0.0, ElementType::bfloat16), 0x8000);
  EXPECT_EQ(stored(0x1p-200, ElementType::float16), 0);
}

TEST(CheckpointValues, AreRoundedToTheNearest) {
  const test::FreshSeed seed;
  std::mt19937_64 random(seed.value);
  for (const auto& [type, largest] :
       {std::pair{ElementType::float16, kLargestFloat16}, std::pair{ElementType::bfloat16, kLargestBFloat16}}) {
    const auto values = all_values(type, largest);
    ASSERT_TRUE(std::is_sorted(values.begin(), values.end()));
    for (int i = 0; i < 20000; ++i) {
      const auto below = static_cast<std::uint16_t>(random() % largest);
      const double middle = values[below] / 2 + values[below + 1] / 2;
      const double close = std::nextafter(middle, random() % 2 == 0 ? 0 : 1e300);
      EXPECT_EQ(stored(middle, type), below % 2 == 0 ? below : below + 1) << middle;
      EXPECT_EQ(stored(close, type), close < middle ? below : below + 1) << close;
      EXPECT_EQ(stored(values[below], type), below);
    }
  }
}

TEST(CheckpointValues, ThatBecomeInfiniteAreCounted) {
  std::vector<std::byte> bytes;
  const auto infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(store_values(std::vector{65519.0, 65520.0, -1e300, infinity, std::nan("")}, ElementType::float16, bytes),
            2u);
  EXPECT_EQ(bytes, bytes_of<std::uint16_t>({0x7bff, 0x7c00, 0xfc00, 0x7c00, 0x7e00}));
  EXPECT_EQ(store_values(std::vector{1e300}, ElementType::float32, bytes), 1u);
  EXPECT_EQ(store_values(std::vector{1e300}, ElementType::float64, bytes), 0u);
}

TEST(CheckpointValues, AreComparedByBits) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(difference<float>(ElementType::float32, {nan, 1}, {nan, 1}).count, 0u);
  const auto other_nan = difference<float>(ElementType::float32, {1, nan}, {1, std::bit_cast<float>(0x7fc00001u)});
  EXPECT_EQ(std::pair(other_nan.count, other_nan.first), std::pair(1ul, 1ul));
  EXPECT_EQ(other_nan.not_finite, 1u);
  EXPECT_FALSE(other_nan.largest_absolute.has_value());
  const auto zeros = difference<double>(ElementType::float64, {0.0}, {-0.0});
  EXPECT_EQ(zeros.count, 1u);
  EXPECT_EQ(zeros.largest_absolute, 0);
  EXPECT_EQ(zeros.largest_relative, 0);
}

TEST(CheckpointValues, DifferByTheLargestDifferences) {
  const auto differ = difference<float>(ElementType::float32, {5, 100, 0.5f, 3}, {5, 102, 1.5f, INFINITY});
  EXPECT_EQ(std::pair(differ.count, differ.first), std::pair(3ul, 1ul));
  EXPECT_EQ(differ.not_finite, 1u);
  EXPECT_EQ(differ.largest_absolute, 2);
  EXPECT_DOUBLE_EQ(*differ.largest_relative, 1 / 1.5);
}

TEST(CheckpointValues, OfSixtyFourBitsDifferExactly) {
  const auto largest = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(difference<std::int64_t>(ElementType::int64, {largest}, {largest - 1}).largest_absolute, 1);
  EXPECT_EQ(difference<std::uint64_t>(ElementType::uint64, {0}, {~std::uint64_t{0}}).largest_absolute, 0x1p64);
}

TEST(CheckpointValues, OfComplexNumbersAreTwo) {
  EXPECT_EQ(count_values(ElementType::complex64, 24), 6u);
  const auto differ = difference<float>(ElementType::complex64, {1, 2, 3, 4}, {1, 2, 3, 6});
  EXPECT_EQ(std::pair(differ.count, differ.first), std::pair(1ul, 3ul));
  EXPECT_EQ(read_values(ElementType::complex64, bytes_of<float>({1, 2})), (std::vector<double>{1, 2}));
}

TEST(CheckpointValues, OfFewerThanSixteenBitsAreBytes) {
  const auto differ = difference<std::uint8_t>(ElementType::float8_e4m3, {1, 2, 3}, {1, 0, 0});
  EXPECT_EQ(std::pair(differ.count, differ.first), std::pair(2ul, 1ul));
  EXPECT_FALSE(differ.largest_absolute.has_value());
  for (const auto type : {ElementType::float4, ElementType::float6_e2m3, ElementType::float8_e5m2}) {
    EXPECT_TRUE(is_scaled(type));
    EXPECT_FALSE(has_fractions(type));
  }
  for (const auto type : {ElementType::boolean, ElementType::int8, ElementType::uint8, ElementType::int64}) {
    EXPECT_FALSE(is_scaled(type));
    EXPECT_FALSE(has_fractions(type));
  }
}

}  // namespace
}  // namespace libtrain::checkpoint_tool
