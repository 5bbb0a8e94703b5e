#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/sampler.hpp>

#include <tests/support/fresh_seed.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Numbers = std::vector<std::uint64_t>;
constexpr std::uint64_t kToTheEnd = ~std::uint64_t{0};

// As many groups as COCO has with a factor of 3, in shares like its own: most images are 4:3 or 3:2.
SamplerOptions grouped(std::uint64_t size, std::uint64_t batch_size, Remainder remainder = Remainder::pad) {
  SamplerOptions options{.dataset_size = size, .batch_size = batch_size, .seed = 11, .remainder = remainder};
  std::mt19937 random(3);
  for (std::uint64_t sample = 0; sample < size; ++sample) {
    const auto percent = random() % 100;
    options.groups.push_back(percent < 1    ? 0
                             : percent < 6  ? 1
                             : percent < 68 ? 2
                             : percent < 71 ? 3
                             : percent < 76 ? 4
                             : percent < 97 ? 5
                             : percent < 99 ? 6
                                            : 7);
  }
  return options;
}

// Step by step, the samples of each rank.
using Steps = std::vector<std::vector<Numbers>>;

Steps steps_of(const SamplerOptions& options, int world_size, std::uint64_t epoch, std::uint64_t from = 0,
               std::uint64_t most_steps = kToTheEnd) {
  Steps steps;
  for (int rank = 0; rank < world_size; ++rank) {
    const Sampler sampler(options, {.rank = rank, .world_size = world_size});
    const EpochOrder order = sampler.order(epoch);
    if (rank == 0) steps.resize(std::min(most_steps, sampler.steps(from)));
    EXPECT_EQ(std::min(most_steps, sampler.steps(from)), steps.size()) << "rank " << rank;
    for (std::uint64_t step = 0; step < std::min<std::uint64_t>(steps.size(), sampler.batches(from)); ++step) {
      steps[step].push_back(sampler.batch(order, step, from));
    }
  }
  return steps;
}

Numbers global_batch(const std::vector<Numbers>& step) {
  Numbers samples;
  for (const auto& of_rank : step) samples.insert(samples.end(), of_rank.begin(), of_rank.end());
  return samples;
}

Numbers read_by(const Steps& steps) {
  Numbers samples;
  for (const auto& step : steps) std::ranges::copy(global_batch(step), std::back_inserter(samples));
  return samples;
}

Numbers whole_order(const SamplerOptions& options, std::uint64_t epoch) {
  const EpochOrder order = Sampler(options).order(epoch);
  Numbers samples;
  for (std::uint64_t i = 0; i < options.dataset_size; ++i) samples.push_back(order(i));
  return samples;
}

bool is_mixed(const SamplerOptions& options, const Numbers& batch) {
  return std::ranges::any_of(batch,
                             [&](auto sample) { return options.groups[sample] != options.groups[batch.front()]; });
}

std::uint64_t mixed_global_batches(const SamplerOptions& options, int world_size, std::uint64_t from = 0) {
  std::uint64_t mixed = 0;
  for (const auto& step : steps_of(options, world_size, 4, from))
    mixed += is_mixed(options, global_batch(step)) ? 1 : 0;
  return mixed;
}

TEST(SamplerGroups, HaveEverySampleOnceInTheSameOrderForAnyNumberOfRanks) {
  for (const int world_size : {1, 2, 3, 4, 8}) {
    for (const std::uint64_t batch_size : {1, 2, 5, 16}) {
      for (const auto remainder : {Remainder::pad, Remainder::drop, Remainder::exact, Remainder::uneven}) {
        SCOPED_TRACE(::testing::Message()
                     << world_size << " ranks, batch " << batch_size << ", remainder " << static_cast<int>(remainder));
        const auto options = grouped(999, batch_size, remainder);
        const auto world = static_cast<std::uint64_t>(world_size);
        Numbers expected = whole_order(options, 4);
        for (std::uint64_t i = 0; remainder == Remainder::pad && expected.size() % world != 0; ++i) {
          expected.push_back(expected[i]);
        }
        if (remainder == Remainder::drop) expected.resize(999 - 999 % (batch_size * world));
        EXPECT_EQ(read_by(steps_of(options, world_size, 4)), expected);
      }
    }
  }
}

TEST(SamplerGroups, GoOnAtAnyPositionOnOtherRanksWithoutRepeatingOrSkipping) {
  const test::FreshSeed seed;
  std::mt19937_64 random(seed.value);
  const auto draw = [&](std::uint64_t low, std::uint64_t high) { return low + random() % (high - low + 1); };
  for (int trial = 0; trial < 50; ++trial) {
    SamplerOptions options = grouped(draw(1, 700), 1, Remainder::exact);
    options.group_chunk = draw(1, 80);
    Numbers read;
    std::uint64_t position = 0;
    while (position < options.dataset_size) {
      options.batch_size = draw(1, 20);
      const int world_size = static_cast<int>(draw(1, 8));
      const std::uint64_t steps = draw(1, 9);
      std::ranges::copy(read_by(steps_of(options, world_size, 2, position, steps)), std::back_inserter(read));
      position = Sampler(options, {.rank = 0, .world_size = world_size}).position_after(steps, position);
    }
    EXPECT_EQ(read, whole_order(options, 2));
    std::ranges::sort(read);
    EXPECT_EQ(std::ranges::adjacent_find(read), read.end());
    EXPECT_EQ(read.size(), options.dataset_size);
  }
}

// 10,007 samples: 156 chunks of 64, of which up to 7 are mixed, and 23 samples in random order.
TEST(SamplerGroups, AreOneInNearlyAllGlobalBatches) {
  constexpr std::uint64_t kSize = 10'007;
  for (const int world_size : {1, 2, 4, 8}) {
    for (const std::uint64_t batch_size : {1, 2, 4, 8}) {
      const std::uint64_t global = batch_size * static_cast<std::uint64_t>(world_size);
      EXPECT_LE(mixed_global_batches(grouped(kSize, batch_size), world_size), 7 + (23 + global - 1) / global)
          << world_size << " ranks, batch " << batch_size;
    }
  }
  // Other sizes: also those that contain the start of a chunk, of which there are 157.
  for (const std::uint64_t batch_size : {1, 2, 5, 7, 16}) {
    EXPECT_LE(mixed_global_batches(grouped(kSize, batch_size), 3), 7 + 23 / (3 * batch_size) + 1 + 157)
        << "3 ranks, batch " << batch_size;
  }
  auto larger = grouped(kSize, 32);
  larger.group_chunk = 256;  // 39 chunks, and 23 samples
  EXPECT_LE(mixed_global_batches(larger, 8), 7u + 1u);
  // Without groups nearly all batches of 16 are mixed.
  auto ungrouped = grouped(kSize, 8);
  const auto groups = std::exchange(ungrouped.groups, {});
  std::uint64_t mixed = 0;
  const auto steps = steps_of(ungrouped, 2, 4);
  ungrouped.groups = groups;
  for (const auto& step : steps) mixed += is_mixed(ungrouped, global_batch(step)) ? 1 : 0;
  EXPECT_GT(mixed, steps.size() * 9 / 10);
}

// 32 ranks of 8: a step has the samples of four chunks.
TEST(SamplerGroups, AreOneInARanksBatchWhenTheGlobalBatchIsLargerThanAChunk) {
  const auto options = grouped(10'007, 8);
  std::uint64_t mixed = 0;
  std::uint64_t batches = 0;
  for (const auto& step : steps_of(options, 32, 4)) {
    for (const auto& of_rank : step) {
      if (of_rank.size() < 8) continue;  // of the last step, which is not full
      ++batches;
      mixed += is_mixed(options, of_rank) ? 1 : 0;
    }
  }
  EXPECT_EQ(batches, 39u * 32);
  EXPECT_LE(mixed, 7u);
}

TEST(SamplerGroups, StayOneAfterResumingAtAMultipleOfTheGlobalBatch) {
  const auto options = grouped(10'007, 8);
  EXPECT_LE(mixed_global_batches(options, 2, 16 * 99), 7u + 2u);
  // 4 ranks from there: a step in two has samples of two chunks.
  EXPECT_LE(mixed_global_batches(options, 4, 16 * 99), 7u + 1u + 157u);
}

TEST(SamplerGroups, LeaveOutWhatIsLeftOutWithoutThem) {
  for (const std::uint64_t batch_size : {2, 8, 16}) {
    auto options = grouped(1000 + batch_size + 1, batch_size, Remainder::drop);
    Numbers with = read_by(steps_of(options, 4, 6));
    options.groups.clear();
    Numbers without = read_by(steps_of(options, 4, 6));
    EXPECT_LT(without.size(), options.dataset_size);
    EXPECT_NE(with, without);
    std::ranges::sort(with);
    std::ranges::sort(without);
    EXPECT_EQ(with, without);
  }
}

TEST(SamplerGroups, AreMixedAlongTheEpoch) {
  const auto options = grouped(64 * 200, 16);
  std::vector<std::uint64_t> in_first_half(8);
  std::vector<std::uint64_t> all(8);
  const Numbers order = whole_order(options, 0);
  for (std::size_t i = 0; i < order.size(); ++i) {
    ++all[options.groups[order[i]]];
    if (i < order.size() / 2) ++in_first_half[options.groups[order[i]]];
  }
  // 124 and 42 chunks: their halves deviate by less than 5 standard deviations of the hypergeometric distribution.
  for (const auto& [group, deviation] : {std::pair{2, 17.2}, std::pair{5, 14.4}}) {
    const auto half = static_cast<double>(all[static_cast<std::size_t>(group)]) / 2;
    EXPECT_NEAR(static_cast<double>(in_first_half[static_cast<std::size_t>(group)]), half, 64 * deviation);
  }
}

TEST(SamplerGroups, HaveAnotherOrderInEachEpochAndForEachSeed) {
  auto options = grouped(500, 4);
  const Numbers first = whole_order(options, 1);
  EXPECT_EQ(whole_order(options, 1), first);
  EXPECT_NE(whole_order(options, 2), first);
  options.seed = 12;
  EXPECT_NE(whole_order(options, 1), first);
}

TEST(SamplerGroups, BelongToTheFingerprint) {
  auto options = grouped(500, 4);
  const auto fingerprint = [&] { return Sampler(options).fingerprint(); };
  const auto of_these = fingerprint();
  EXPECT_EQ(Sampler(options, {.rank = 2, .world_size = 3}).fingerprint(), of_these);
  std::set<std::uint64_t> others{of_these};
  options.group_chunk = 32;
  others.insert(fingerprint());
  options.group_chunk = 64;
  ++options.groups[499];
  others.insert(fingerprint());
  options.groups.assign(500, 0);
  others.insert(fingerprint());
  options.groups.clear();
  others.insert(fingerprint());
  EXPECT_EQ(others.size(), 5u);
  // Without groups the size of the chunks has no effect.
  options.group_chunk = 32;
  EXPECT_TRUE(others.contains(fingerprint()));
}

std::string refusal_of(const SamplerOptions& options) {
  return message_of<UsageError>([&] { Sampler{options}; });
}

TEST(SamplerGroups, AreRefusedWhereTheyMakeNoSense) {
  const std::vector<std::uint8_t> ten(10, 1);
  EXPECT_THAT(refusal_of({.dataset_size = 10, .order = Order::sequential, .groups = ten}),
              HasSubstr("need Order::shuffled"));
  EXPECT_THAT(refusal_of({.dataset_size = 10, .order = Order::blocks, .blocks = {10}, .groups = ten}),
              HasSubstr("need Order::shuffled"));
  EXPECT_THAT(refusal_of({.dataset_size = 10, .repetitions = 2, .groups = ten}), HasSubstr("no repetitions"));
  EXPECT_THAT(refusal_of({.dataset_size = 11, .groups = ten}), AllOf(HasSubstr("10 samples"), HasSubstr("has 11")));
  EXPECT_THAT(refusal_of({.dataset_size = 10, .groups = ten, .group_chunk = 0}), HasSubstr("group_chunk is 0"));
  EXPECT_THAT(refusal_of({.dataset_size = std::uint64_t{1} << 32, .groups = ten}), HasSubstr("up to 4294967295"));
  EXPECT_THROW(Sampler({.dataset_size = 10, .groups = ten}).order(0)(10), UsageError);
}

}  // namespace
}  // namespace libtrain::data
