#include <libtrain/data/detail/block_order.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using test::message_of;
using ::testing::HasSubstr;

using Numbers = std::vector<std::uint64_t>;

Numbers first(const detail::BlockOrder& order, std::uint64_t count) {
  Numbers samples;
  for (std::uint64_t i = 0; i < count; ++i) samples.push_back(order(i));
  return samples;
}

Numbers all(const detail::BlockOrder& order) {
  return first(order, order.size());
}

// Golden values: tests/data/make_block_golden.py, which transcribes the definition on Python's lists and integers.
TEST(BlockOrder, MatchesGoldenValues) {
  const Numbers sizes{3, 0, 5, 2, 4};
  EXPECT_EQ(all(detail::BlockOrder(sizes, 2, 0, 0)), (Numbers{12, 10, 13, 11, 1, 8, 0, 2, 9, 5, 6, 4, 3, 7}));
  EXPECT_EQ(all(detail::BlockOrder(sizes, 2, 0, 1)), (Numbers{10, 6, 11, 5, 12, 13, 4, 3, 7, 0, 2, 1, 8, 9}));
  EXPECT_EQ(all(detail::BlockOrder(sizes, 2, 1, 0)), (Numbers{4, 8, 3, 5, 9, 7, 6, 2, 11, 12, 1, 10, 13, 0}));
  EXPECT_EQ(all(detail::BlockOrder(sizes, 1, 0, 0)), (Numbers{11, 10, 13, 12, 9, 8, 1, 0, 2, 3, 4, 7, 5, 6}));
  EXPECT_EQ(all(detail::BlockOrder(sizes, 16, 0, 0)), (Numbers{9, 0, 1, 10, 5, 11, 12, 4, 2, 8, 7, 3, 6, 13}));
  EXPECT_EQ(first(detail::BlockOrder(Numbers(1000, 5), 3, 42, 89), 14),
            (Numbers{2905, 188, 189, 521, 2909, 186, 185, 522, 187, 520, 524, 523, 2906, 2907}));
}

// For each position in the order, the block that its sample lies in: found by counting, block by block.
Numbers blocks_read(const Numbers& order, const Numbers& sizes) {
  Numbers block_of;
  for (std::uint64_t block = 0; block < sizes.size(); ++block) block_of.insert(block_of.end(), sizes[block], block);
  Numbers blocks;
  for (const std::uint64_t sample : order) blocks.push_back(block_of.at(sample));
  return blocks;
}

// How many blocks are open at most, if each is opened at its first sample and closed after its last.
std::uint64_t most_open(const Numbers& blocks, const Numbers& sizes) {
  Numbers left = sizes;
  std::set<std::uint64_t> open;
  std::uint64_t most = 0;
  for (const std::uint64_t block : blocks) {
    open.insert(block);
    most = std::max<std::uint64_t>(most, open.size());
    if (--left[block] == 0) open.erase(block);
  }
  return most;
}

TEST(BlockOrder, ReadsEverySampleOnceFromFewBlocksAtATime) {
  std::mt19937 random(6);
  const auto draw = [&](unsigned low, unsigned high) { return low + random() % (high - low + 1); };
  for (int trial = 0; trial < 100; ++trial) {
    Numbers sizes(draw(1, 40));
    for (auto& size : sizes) size = draw(0, 3) == 0 ? 0 : draw(1, 30);
    const std::uint64_t blocks_at_once = draw(1, 12);
    SCOPED_TRACE(::testing::Message() << "sizes " << ::testing::PrintToString(sizes) << ", " << blocks_at_once
                                      << " at once");
    const detail::BlockOrder order(sizes, blocks_at_once, 9, static_cast<std::uint64_t>(trial));
    ASSERT_EQ(order.size(), std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0}));
    Numbers samples = all(order);
    EXPECT_LE(most_open(blocks_read(samples, sizes), sizes), blocks_at_once);
    std::sort(samples.begin(), samples.end());
    Numbers expected(order.size());
    std::iota(expected.begin(), expected.end(), std::uint64_t{0});
    ASSERT_EQ(samples, expected);
  }
}

TEST(BlockOrder, MixesTheBlocksThatAreReadTogether) {
  const Numbers sizes(64, 100);
  const Numbers blocks = blocks_read(all(detail::BlockOrder(sizes, 16, 1, 2)), sizes);
  EXPECT_EQ(most_open(blocks, sizes), 16u);
  // A block has 6 of the first 100 samples in random order on average, and more than 25 once in a billion.
  for (std::uint64_t block = 0; block < 64; ++block) {
    EXPECT_LE(std::count(blocks.begin(), blocks.begin() + 100, block), 25);
  }
}

// The 99.99th percentile of chi-square with 23 degrees of freedom is 57.1.
TEST(BlockOrder, SendsEachPositionEverywhereEquallyOften) {
  constexpr std::uint64_t kDraws = 4800;
  const auto chi_square = [](const Numbers& counts) {
    double sum = 0;
    for (const std::uint64_t count : counts) {
      const double difference = static_cast<double>(count) - 200;
      sum += difference * difference / 200;
    }
    return sum;
  };
  const Numbers sizes(6, 4);
  for (const std::uint64_t position : {0u, 13u}) {
    Numbers by_seed(24), by_epoch(24);
    for (std::uint64_t key = 0; key < kDraws; ++key) {
      ++by_seed[detail::BlockOrder(sizes, 2, key, 0)(position)];
      ++by_epoch[detail::BlockOrder(sizes, 2, 0, key)(position)];
    }
    EXPECT_LT(chi_square(by_seed), 57.1) << "position " << position;
    EXPECT_LT(chi_square(by_epoch), 57.1) << "position " << position;
  }
}

TEST(BlockOrder, CountsSamplesIn64Bits) {
  constexpr std::uint64_t kHalf = std::uint64_t{1} << 63;
  const detail::BlockOrder order({kHalf, kHalf - 1}, 1, 0, 0);
  EXPECT_EQ(order.size(), ~std::uint64_t{0});
  // One block after the other: the first half of the order lies in one of them alone.
  const bool second_comes_first = order(0) >= kHalf;
  for (std::uint64_t i = 0; i < 16; ++i) {
    const std::uint64_t position = i * (kHalf / 16);
    EXPECT_EQ(order(position) >= kHalf, second_comes_first) << "position " << position;
    EXPECT_NE(order(order.size() - 1 - position) >= kHalf, second_comes_first)
        << "position " << position << " from the end";
  }
}

TEST(BlockOrder, OfEmptyBlocksHasNoPositions) {
  EXPECT_EQ(detail::BlockOrder({}, 4, 0, 0).size(), 0u);
  EXPECT_EQ(detail::BlockOrder({0, 0, 0}, 2, 0, 0).size(), 0u);
  EXPECT_THROW(detail::BlockOrder({}, 4, 0, 0)(0), UsageError);
  EXPECT_THROW(detail::BlockOrder({0, 0, 0}, 2, 0, 0)(0), UsageError);
}

TEST(BlockOrder, TakesMoreBlocksAtOnceThanThereAre) {
  Numbers samples = all(detail::BlockOrder({4, 4}, ~std::uint64_t{0}, 0, 0));
  std::sort(samples.begin(), samples.end());
  EXPECT_EQ(samples, (Numbers{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(BlockOrder, RefusesWhatMakesNoSense) {
  EXPECT_THAT(message_of<UsageError>([] { detail::BlockOrder({3}, 0, 0, 0); }), HasSubstr("blocks_at_once is 0"));
  EXPECT_THAT(message_of<UsageError>([] { detail::BlockOrder({~std::uint64_t{0}, 1}, 2, 0, 0); }),
              HasSubstr("64 bits"));
  EXPECT_THAT(message_of<UsageError>([] { detail::BlockOrder({3, 4}, 2, 0, 0)(7); }),
              ::testing::AllOf(HasSubstr("Position 7"), HasSubstr("7 samples")));
}

}  // namespace
}  // namespace libtrain::data
