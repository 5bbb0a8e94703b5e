#include <libtrain/numeric/detail/norm.hpp>

#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/numeric/detail/float16.hpp>

#include <tests/numeric/random_values.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::detail {
namespace {

using test::message_of;
using test::random_values;
using ::testing::HasSubstr;

TEST(Norm, SumsSquaresInDouble) {
  std::vector<float> values(1000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
  for (const std::size_t count : {0, 1, 63, 64, 65, 128, 999, 1000}) {
    const auto n = static_cast<double>(count);
    EXPECT_EQ(sum_of_squares(values.data(), count, DataType::float32), n * (n + 1) * (2 * n + 1) / 6) << count;
  }
  // 2^24 + 1 and 10^60 are no float32.
  const std::vector<float> close{4096, 1};
  EXPECT_EQ(sum_of_squares(close.data(), 2, DataType::float32), 16777217.0);
  const std::vector<float> large{1e30f};
  EXPECT_DOUBLE_EQ(sum_of_squares(large.data(), 1, DataType::float32),
                   static_cast<double>(1e30f) * static_cast<double>(1e30f));
}

template <typename T>
void expect_same_squares_anywhere() {
  const auto values = random_values<T>(1037, 5);
  constexpr auto kType = std::is_same_v<T, float> ? DataType::float32 : DataType::float64;
  const auto expected = sum_of_squares(values.data(), values.size(), kType);
  long double squares = 0;
  for (const auto value : values) squares += static_cast<long double>(value) * static_cast<long double>(value);
  EXPECT_NEAR(expected, static_cast<double>(squares), 1e-13 * expected);
  for (std::size_t offset = 0; offset < 20; ++offset) {
    std::vector<T> moved(offset);
    moved.insert(moved.end(), values.begin(), values.end());
    EXPECT_EQ(sum_of_squares(moved.data() + offset, values.size(), kType), expected) << "offset " << offset;
  }
}

TEST(Norm, SumsSquaresToTheSameBitsWhereverTheyLie) {
  expect_same_squares_anywhere<float>();
  expect_same_squares_anywhere<double>();
}

TEST(Norm, SumsOfSquaresShowWhatIsNotFinite) {
  std::vector<float> values(100, 1.0f);
  values[70] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(sum_of_squares(values.data(), values.size(), DataType::float32)));
  values[99] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(sum_of_squares(values.data(), values.size(), DataType::float32)));
}

TEST(Norm, SumsAndFindsMagnitudes) {
  std::vector<float> values(1000, -0.5f);
  values[700] = -3;
  EXPECT_EQ(sum_of_magnitudes(values.data(), values.size(), DataType::float32), 999 * 0.5 + 3);
  EXPECT_EQ(largest_magnitude(values.data(), values.size(), DataType::float32), 3);
  EXPECT_EQ(largest_magnitude(values.data(), 0, DataType::float32), 0);
  values[999] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(largest_magnitude(values.data(), values.size(), DataType::float32)));
}

TEST(Norm, SumsSixteenBitNumbersBeyondTheirRange) {
  const std::vector<Float16> halves(100, narrow<Float16>(60000.0f));
  const std::vector<BFloat16> brains(100, narrow<BFloat16>(0x1p100f));
  const double half = widen(halves.front());
  EXPECT_EQ(sum_of_squares(halves.data(), halves.size(), DataType::float16), 100 * half * half);
  EXPECT_EQ(sum_of_magnitudes(brains.data(), brains.size(), DataType::bfloat16), 100 * 0x1p100);
}

TEST(Norm, OfIntegersIsRefused) {
  const std::vector<int> values{1};
  EXPECT_THAT(message_of<UsageError>([&] { sum_of_squares(values.data(), 1, DataType::int32); }), HasSubstr("int32"));
}

}  // namespace
}  // namespace libtrain::detail
