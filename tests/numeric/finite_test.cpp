#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <libtrain/numeric/detail/finite.hpp>

namespace libtrain::detail {
namespace {

template <typename Number>
void expect_found_everywhere(DataType type, Number one, const std::vector<Number>& odd) {
  for (const std::size_t count : {0u, 1u, 7u, 4096u, 4097u, 10000u}) {
    std::vector<Number> numbers(count, one);
    EXPECT_TRUE(all_finite(numbers.data(), count, type)) << count;
    for (const auto place : {std::size_t{0}, count / 2, count - 1}) {
      if (count == 0) continue;
      for (const auto number : odd) {
        auto changed = numbers;
        changed[place] = number;
        EXPECT_FALSE(all_finite(changed.data(), count, type)) << count << " at " << place;
      }
    }
  }
}

TEST(Finite, FindsNanAndInfinityAnywhere) {
  using Float = std::numeric_limits<float>;
  using Double = std::numeric_limits<double>;
  expect_found_everywhere<float>(DataType::float32, 1.5f, {Float::quiet_NaN(), Float::infinity(), -Float::infinity()});
  expect_found_everywhere<double>(DataType::float64, 1.5,
                                  {Double::quiet_NaN(), Double::infinity(), -Double::infinity()});
  // Infinity, minus infinity and a NaN of IEEE 754 binary16, and of bfloat16.
  expect_found_everywhere<std::uint16_t>(DataType::float16, 0x3C00, {0x7C00, 0xFC00, 0x7E00});
  expect_found_everywhere<std::uint16_t>(DataType::bfloat16, 0x3F80, {0x7F80, 0xFF80, 0x7FC0});
}

TEST(Finite, TakesTheLargestNumbersForFinite) {
  const float floats[] = {std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest(),
                          std::numeric_limits<float>::denorm_min()};
  EXPECT_TRUE(all_finite(floats, 3, DataType::float32));
  const std::uint16_t halves[] = {0x7BFF, 0xFBFF, 0x0001};
  EXPECT_TRUE(all_finite(halves, 3, DataType::float16));
}

}  // namespace
}  // namespace libtrain::detail
