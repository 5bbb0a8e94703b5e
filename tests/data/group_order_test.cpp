#include <libtrain/data/detail/group_order.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/detail/permutation.hpp>

#include <tests/support/fresh_seed.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using test::message_of;
using ::testing::HasSubstr;

using Samples = std::vector<std::uint64_t>;
using Groups = std::vector<std::uint8_t>;

Samples samples_of(const detail::GroupOrder& order, std::uint64_t count) {
  Samples samples;
  for (std::uint64_t i = 0; i < count; ++i) samples.push_back(order(i));
  return samples;
}

const Groups kFew{0, 1, 0, 2, 0, 0, 1, 0, 2, 0, 0, 1, 0, 0};

Samples few(std::uint64_t chunk, std::uint64_t seed, std::uint64_t epoch) {
  return samples_of(detail::GroupOrder(kFew, chunk, seed, epoch), kFew.size());
}

// Golden values: tests/data/make_group_golden.py, which transcribes the definition on Python's lists and integers.
TEST(GroupOrder, MatchesGoldenValues) {
  EXPECT_EQ(few(4, 0, 0), (Samples{11, 1, 8, 3, 5, 10, 2, 7, 13, 4, 9, 6, 0, 12}));
  EXPECT_EQ(few(4, 0, 1), (Samples{13, 5, 2, 1, 11, 6, 8, 3, 12, 0, 4, 7, 10, 9}));
  EXPECT_EQ(few(4, 1, 0), (Samples{11, 6, 8, 3, 7, 13, 5, 0, 4, 2, 10, 1, 9, 12}));
  EXPECT_EQ(few(3, 0, 0), (Samples{6, 11, 1, 9, 8, 3, 7, 13, 4, 5, 10, 2, 0, 12}));
  EXPECT_EQ(few(1, 0, 0), (Samples{11, 2, 13, 9, 1, 10, 8, 6, 7, 12, 0, 5, 4, 3}));
  Groups many(1000);
  for (std::size_t sample = 0; sample < many.size(); ++sample) many[sample] = static_cast<std::uint8_t>(sample % 7);
  EXPECT_EQ(samples_of(detail::GroupOrder(many, 8, 42, 89), 16),
            (Samples{731, 367, 346, 423, 101, 52, 773, 801, 744, 590, 940, 156, 303, 681, 401, 219}));
}

TEST(GroupOrder, OfLessThanAChunkIsThePermutation) {
  const detail::Permutation permutation(kFew.size(), 5, 6);
  for (const std::uint64_t chunk : {std::uint64_t{15}, ~std::uint64_t{0}}) {
    const Samples samples = few(chunk, 5, 6);
    for (std::uint64_t i = 0; i < samples.size(); ++i) EXPECT_EQ(samples[i], permutation(i));
  }
}

TEST(GroupOrder, HasEverySampleOnceAndFewMixedChunks) {
  const test::FreshSeed seed;
  std::mt19937_64 random(seed.value);
  const auto draw = [&](std::uint64_t low, std::uint64_t high) { return low + random() % (high - low + 1); };
  for (int trial = 0; trial < 200; ++trial) {
    const std::uint64_t kinds = draw(1, draw(0, 3) == 0 ? 256 : 9);
    Groups groups(draw(1, 1500));
    for (auto& group : groups) group = static_cast<std::uint8_t>(256 - std::min(draw(1, kinds), draw(1, kinds)));
    const std::uint64_t chunk = draw(1, 100);
    SCOPED_TRACE(::testing::Message() << groups.size() << " samples, " << kinds << " groups, chunks of " << chunk);

    const detail::GroupOrder order(groups, chunk, seed.value, static_cast<std::uint64_t>(trial));
    Samples samples = samples_of(order, groups.size());
    std::uint64_t changes_in_chunks = 0;
    const std::uint64_t in_chunks = groups.size() / chunk * chunk;
    for (std::uint64_t i = 1; i < in_chunks; ++i) {
      if (i % chunk != 0 && groups[samples[i]] != groups[samples[i - 1]]) ++changes_in_chunks;
    }
    EXPECT_LT(changes_in_chunks, std::set<std::uint8_t>(groups.begin(), groups.end()).size());

    std::sort(samples.begin(), samples.end());
    Samples expected(groups.size());
    std::iota(expected.begin(), expected.end(), std::uint64_t{0});
    ASSERT_EQ(samples, expected);
  }
}

// How often each of 24 samples in three groups is at a position; the 99.99th percentile of chi-square with 23 degrees
// of freedom is 57.1.
TEST(GroupOrder, SendsEachPositionEverywhereEquallyOften) {
  constexpr std::uint64_t kDraws = 4800;
  Groups groups(24, 0);
  std::fill(groups.begin() + 12, groups.begin() + 20, std::uint8_t{1});
  std::fill(groups.begin() + 20, groups.end(), std::uint8_t{7});
  const auto chi_square = [](const Samples& counts) {
    double sum = 0;
    for (const std::uint64_t count : counts) {
      const double difference = static_cast<double>(count) - 200;
      sum += difference * difference / 200;
    }
    return sum;
  };
  for (const std::uint64_t position : {0u, 13u, 23u}) {
    Samples by_seed(24), by_epoch(24);
    for (std::uint64_t key = 0; key < kDraws; ++key) {
      ++by_seed[detail::GroupOrder(groups, 4, key, 0)(position)];
      ++by_epoch[detail::GroupOrder(groups, 4, 0, key)(position)];
    }
    EXPECT_LT(chi_square(by_seed), 57.1) << "position " << position;
    EXPECT_LT(chi_square(by_epoch), 57.1) << "position " << position;
  }
}

TEST(GroupOrder, RefusesPositionsOutsideTheDataSet) {
  EXPECT_THAT(message_of<UsageError>([] { detail::GroupOrder(kFew, 4, 0, 0)(14); }), HasSubstr("Position 14"));
}

}  // namespace
}  // namespace libtrain::data
