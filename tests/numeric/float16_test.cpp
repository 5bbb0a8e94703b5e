#include <libtrain/numeric/detail/float16.hpp>

#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace libtrain::detail {
namespace {

std::uint16_t half_bits(float value) {
  return static_cast<std::uint16_t>(narrow<Float16>(value));
}

std::uint16_t bfloat16_bits(float value) {
  return static_cast<std::uint16_t>(narrow<BFloat16>(value));
}

constexpr std::uint16_t kInfinity = 0x7C00;
constexpr std::uint16_t kSign = 0x8000;

// By the definition of binary16; what follows the largest number stands for infinity.
float value_of_half(unsigned bits) {
  const unsigned exponent = bits >> 10;
  const auto fraction = static_cast<double>(bits & 0x3FF);
  if (exponent == 0) return static_cast<float>(std::ldexp(fraction, -24));
  return static_cast<float>(std::ldexp(1024 + fraction, static_cast<int>(exponent) - 25));
}

void expect_half(float value, unsigned bits) {
  ASSERT_EQ(half_bits(value), bits) << value;
  ASSERT_EQ(half_bits(-value), bits | kSign) << -value;
}

TEST(Half, EveryNumberIsItself) {
  for (unsigned bits = 0; bits < kInfinity; ++bits) expect_half(value_of_half(bits), bits);
}

// A number between two neighbours goes to the nearer one, the one in the middle to the even one; that the middle after
// the largest number becomes infinite is the standard's rule.
TEST(Half, EveryGapIsDividedInTheMiddle) {
  for (unsigned bits = 0; bits < kInfinity; ++bits) {
    const float low = value_of_half(bits);
    const float high = value_of_half(bits + 1);
    const float middle = (low + high) / 2;
    expect_half(middle, bits % 2 == 0 ? bits : bits + 1);
    expect_half(std::nextafter(middle, low), bits);
    expect_half(std::nextafter(middle, high), bits + 1);
  }
}

TEST(Half, KnowsInfinityNanAndNumbersBeyondItsRange) {
  expect_half(std::numeric_limits<float>::infinity(), kInfinity);
  expect_half(std::numeric_limits<float>::max(), kInfinity);
  expect_half(65536.0f, kInfinity);
  expect_half(std::numeric_limits<float>::denorm_min(), 0);
  expect_half(std::numeric_limits<float>::min(), 0);
  for (const std::uint32_t bits : {0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu, 0x7F802000u}) {
    EXPECT_EQ(half_bits(std::bit_cast<float>(bits)), 0x7E00);
    EXPECT_EQ(half_bits(std::bit_cast<float>(bits | 0x80000000u)), 0xFE00);
  }
}

TEST(Bfloat16, RoundsToTheNearestAndTiesToEven) {
  for (std::uint32_t upper = 0; upper < 0xFFFF; ++upper) {
    if ((upper & 0x7FFF) >= 0x7F80) continue;
    const std::uint32_t bits = upper << 16;
    ASSERT_EQ(bfloat16_bits(std::bit_cast<float>(bits)), upper);
    ASSERT_EQ(bfloat16_bits(std::bit_cast<float>(bits + 0x7FFF)), upper);
    ASSERT_EQ(bfloat16_bits(std::bit_cast<float>(bits + 0x8000)), upper % 2 == 0 ? upper : upper + 1);
    ASSERT_EQ(bfloat16_bits(std::bit_cast<float>(bits + 0x8001)), upper + 1);
  }
}

TEST(Bfloat16, KnowsInfinityAndNan) {
  EXPECT_EQ(bfloat16_bits(std::numeric_limits<float>::infinity()), 0x7F80);
  EXPECT_EQ(bfloat16_bits(-std::numeric_limits<float>::infinity()), 0xFF80);
  EXPECT_EQ(bfloat16_bits(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(bfloat16_bits(std::numeric_limits<float>::quiet_NaN()), 0x7FC0);
  EXPECT_EQ(bfloat16_bits(std::bit_cast<float>(0x7F800001u)), 0x7FC0);
}

}  // namespace
}  // namespace libtrain::detail
