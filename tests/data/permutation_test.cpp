#include <libtrain/data/detail/permutation.hpp>

#include <cstdint>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

namespace libtrain::data {
namespace {

std::vector<std::uint64_t> first(const detail::Permutation& permutation, std::uint64_t count) {
  std::vector<std::uint64_t> values;
  for (std::uint64_t i = 0; i < count; ++i) values.push_back(permutation(i));
  return values;
}

// Golden values: tests/data/make_golden.py, an independent implementation on Python's integers.
TEST(Permutation, MatchesGoldenValues) {
  using Values = std::vector<std::uint64_t>;
  EXPECT_EQ(first(detail::Permutation(3, 0, 1), 3), (Values{0, 2, 1}));
  EXPECT_EQ(first(detail::Permutation(4, 0, 1), 4), (Values{0, 2, 3, 1}));
  EXPECT_EQ(first(detail::Permutation(10, 0, 0), 10), (Values{5, 1, 2, 7, 0, 8, 6, 4, 9, 3}));
  EXPECT_EQ(first(detail::Permutation(10, 0, 1), 10), (Values{1, 2, 0, 6, 4, 8, 7, 9, 5, 3}));
  EXPECT_EQ(first(detail::Permutation(10, 1, 0), 10), (Values{7, 9, 5, 1, 0, 8, 3, 2, 6, 4}));
  EXPECT_EQ(first(detail::Permutation(16, 7, 3), 10), (Values{7, 6, 2, 3, 8, 12, 10, 5, 15, 0}));
  EXPECT_EQ(first(detail::Permutation(1281167, 42, 89), 5), (Values{751587, 449608, 745424, 460955, 409845}));
  EXPECT_EQ(first(detail::Permutation((std::uint64_t{1} << 63) + 5, 1, 2), 3),
            (Values{1762064361643662826u, 7471618814756679694u, 7012544550113241394u}));
}

TEST(Permutation, IsABijectionForEverySize) {
  std::vector<std::uint64_t> sizes(300);
  std::iota(sizes.begin(), sizes.end(), 1);
  for (const std::uint64_t size : {1023, 1024, 1025, 4096, 4097, 100003}) sizes.push_back(size);
  for (const std::uint64_t size : sizes) {
    const detail::Permutation permutation(size, 3, size);
    std::vector<bool> seen(size, false);
    for (std::uint64_t i = 0; i < size; ++i) {
      const std::uint64_t value = permutation(i);
      ASSERT_LT(value, size);
      ASSERT_FALSE(seen[value]) << "size " << size << " repeats " << value;
      seen[value] = true;
    }
  }
}

TEST(Permutation, OfOneElementIsTheIdentity) {
  EXPECT_EQ(detail::Permutation(1, 5, 6)(0), 0u);
}

TEST(Permutation, RefusesPositionsOutsideItsSize) {
  EXPECT_THROW(detail::Permutation(0, 1, 1)(0), UsageError);
  EXPECT_THROW(detail::Permutation(7, 1, 1)(7), UsageError);
  EXPECT_THROW(detail::Permutation(7, 1, 1)(~std::uint64_t{0}), UsageError);
}

TEST(Permutation, CoversTheWholeRangeOf64Bits) {
  const detail::Permutation permutation(~std::uint64_t{0}, 0, 0);
  bool upper_half = false;
  for (std::uint64_t i = 0; i < 64; ++i) upper_half = upper_half || permutation(i) > ~std::uint64_t{0} / 2;
  EXPECT_TRUE(upper_half);
}

double chi_square(const std::vector<int>& counts, int draws) {
  const double expected = static_cast<double>(draws) / static_cast<double>(counts.size());
  double sum = 0;
  for (const int count : counts) sum += (count - expected) * (count - expected) / expected;
  return sum;
}

// The 99.99th percentile of chi-square with 22 degrees of freedom is 54.5.
TEST(Permutation, SendsEachPositionEverywhereEquallyOften) {
  constexpr int kDraws = 23000;
  for (std::uint64_t position : {0, 1, 11, 22}) {
    std::vector<int> by_seed(23), by_epoch(23);
    for (std::uint64_t key = 0; key < kDraws; ++key) {
      ++by_seed[detail::Permutation(23, key, 0)(position)];
      ++by_epoch[detail::Permutation(23, 0, key)(position)];
    }
    EXPECT_LT(chi_square(by_seed, kDraws), 54.5) << "position " << position;
    EXPECT_LT(chi_square(by_epoch, kDraws), 54.5) << "position " << position;
  }
}

// Pairs of neighbours: 12 x 11 ordered pairs; the 99.99th percentile at 131 degrees of freedom is 198.
TEST(Permutation, SendsNeighboursApartEquallyOften) {
  constexpr int kDraws = 66000;
  std::vector<int> counts(132);
  for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
    const detail::Permutation permutation(12, seed, 9);
    const std::uint64_t a = permutation(4);
    const std::uint64_t b = permutation(5);
    ++counts[a * 11 + (b > a ? b - 1 : b)];
  }
  EXPECT_LT(chi_square(counts, kDraws), 198.0);
}

}  // namespace
}  // namespace libtrain::data
