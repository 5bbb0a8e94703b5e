#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <random>
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
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Numbers = std::vector<std::uint64_t>;
constexpr std::uint64_t kEveryStep = ~std::uint64_t{0};

struct Draw {
  std::mt19937_64 random;
  std::uint64_t operator()(std::uint64_t low, std::uint64_t high) { return low + random() % (high - low + 1); }
};

SamplerOptions token_options(std::vector<std::uint32_t> lengths, std::uint64_t max_tokens,
                             Remainder remainder = Remainder::exact, Order order = Order::shuffled) {
  SamplerOptions options{.dataset_size = lengths.size(), .max_tokens = max_tokens, .lengths = std::move(lengths)};
  options.order = order;
  options.remainder = remainder;
  return options;
}

// Most are short, as texts are, with any order and groups or repetitions.
SamplerOptions random_options(Draw& draw) {
  std::vector<std::uint32_t> lengths(draw(1, 300));
  const std::uint64_t longest = draw(1, 60);
  for (auto& length : lengths) length = static_cast<std::uint32_t>(std::min(draw(1, longest), draw(1, longest)));
  SamplerOptions options = token_options(std::move(lengths), longest + draw(0, 100));
  options.seed = draw(0, 1000);
  options.token_count = draw(0, 1) == 0 ? TokenCount::packed : TokenCount::padded;
  switch (draw(0, 4)) {
    case 0:
      options.order = Order::sequential;
      break;
    case 1:
      options.order = Order::blocks;
      options.blocks = {options.dataset_size / 3, options.dataset_size - options.dataset_size / 3};
      break;
    case 2:
      for (const auto length : options.lengths) options.groups.push_back(static_cast<std::uint8_t>(length / 8));
      options.group_chunk = draw(1, 40);
      break;
    case 3:
      options.repetitions = draw(1, 3);
      break;
    default:
      break;
  }
  return options;
}

// Step by step, the samples of each rank.
using Steps = std::vector<std::vector<Numbers>>;

Steps token_steps_of(const SamplerOptions& options, int world_size, std::uint64_t epoch, std::uint64_t from = 0,
                     std::uint64_t most_steps = kEveryStep) {
  Steps steps;
  for (int rank = 0; rank < world_size; ++rank) {
    const Sampler sampler(options, {.rank = rank, .world_size = world_size});
    const EpochOrder order = sampler.order(epoch);
    if (rank == 0) steps.resize(std::min(most_steps, sampler.steps(from, epoch)));
    EXPECT_EQ(std::min(most_steps, sampler.steps(from, epoch)), steps.size()) << "rank " << rank;
    for (std::uint64_t step = 0; step < std::min<std::uint64_t>(steps.size(), sampler.batches(from, epoch)); ++step) {
      steps[step].push_back(sampler.batch(order, step, from));
      EXPECT_EQ(steps[step].back().size(), sampler.samples(step, from, epoch).of_rank);
    }
  }
  return steps;
}

Numbers of_all_ranks(const std::vector<Numbers>& step) {
  Numbers samples;
  for (const auto& of_rank : step) samples.insert(samples.end(), of_rank.begin(), of_rank.end());
  return samples;
}

Numbers ascending(Numbers samples) {
  std::ranges::sort(samples);
  return samples;
}

Numbers order_of_epoch(const SamplerOptions& options, std::uint64_t epoch) {
  const EpochOrder order = Sampler(options).order(epoch);
  Numbers samples;
  for (std::uint64_t i = 0; i < options.dataset_size; ++i) samples.push_back(order(i));
  return samples;
}

std::uint64_t length_of(const SamplerOptions& options, std::uint64_t sample) {
  return options.lengths[sample % options.dataset_size];
}

std::uint64_t longest_of(const SamplerOptions& options, const Numbers& samples) {
  std::uint64_t longest = 0;
  for (const auto sample : samples) longest = std::max(longest, length_of(options, sample));
  return longest;
}

std::uint64_t tokens_of(const SamplerOptions& options, const Numbers& samples) {
  if (options.token_count == TokenCount::padded) return samples.size() * longest_of(options, samples);
  std::uint64_t tokens = 0;
  for (const auto sample : samples) tokens += length_of(options, sample);
  return tokens;
}

// From the definition: greedily from `from` on.
std::vector<Numbers> expected_steps(const SamplerOptions& options, std::uint64_t world, std::uint64_t epoch,
                                    std::uint64_t from) {
  const Numbers order = order_of_epoch(options, epoch);
  std::vector<Numbers> steps;
  for (std::uint64_t position = from; position < order.size(); ++position) {
    auto with_next = steps.empty() ? Numbers{} : steps.back();
    with_next.push_back(order[position]);
    if (steps.empty() || tokens_of(options, with_next) > world * options.max_tokens) steps.emplace_back();
    steps.back().push_back(order[position]);
  }
  return steps;
}

// From the definition, by looking at all ranks for each sample.
std::vector<Numbers> expected_division(const SamplerOptions& options, const Numbers& step, std::size_t world) {
  std::vector<std::size_t> by_length(step.size());
  std::iota(by_length.begin(), by_length.end(), std::size_t{0});
  std::ranges::stable_sort(by_length, [&](auto left, auto right) {
    return length_of(options, step[left]) > length_of(options, step[right]);
  });
  std::vector<std::uint64_t> tokens(world);
  std::vector<std::size_t> owner(step.size());
  std::size_t assigned = 0;
  for (const auto place : by_length) {
    const auto emptiest = static_cast<std::size_t>(std::ranges::min_element(tokens) - tokens.begin());
    const auto rank = options.token_count == TokenCount::padded ? assigned++ % world : emptiest;
    tokens[rank] += length_of(options, step[place]);
    owner[place] = rank;
  }
  std::vector<Numbers> division(world);
  for (std::size_t place = 0; place < step.size(); ++place) division[owner[place]].push_back(step[place]);
  return division;
}

TEST(SamplerTokens, TakeTheOrderAsFarAsItFitsAndDivideItByLength) {
  const test::FreshSeed seed;
  Draw draw{std::mt19937_64(seed.value)};
  for (int trial = 0; trial < 200; ++trial) {
    const auto options = random_options(draw);
    const auto world = static_cast<int>(draw(1, 4));
    const std::uint64_t epoch = draw(0, 3);
    const std::uint64_t from = draw(0, 1) == 0 ? 0 : draw(0, options.dataset_size);
    SCOPED_TRACE(::testing::Message() << options.dataset_size << " samples from " << from << " on, " << world
                                      << " ranks, " << options.max_tokens << " tokens");
    const auto expected = expected_steps(options, static_cast<std::uint64_t>(world), epoch, from);
    const auto steps = token_steps_of(options, world, epoch, from);
    ASSERT_EQ(steps.size(), expected.size());
    for (std::size_t step = 0; step < steps.size(); ++step) {
      ASSERT_EQ(steps[step], expected_division(options, expected[step], static_cast<std::size_t>(world)));
      const std::uint64_t longest = longest_of(options, expected[step]);
      const auto ranks = static_cast<std::uint64_t>(world);
      for (const auto& of_rank : steps[step]) {
        EXPECT_LE(ranks * tokens_of(options, of_rank), tokens_of(options, expected[step]) + (ranks - 1) * longest);
        if (expected[step].size() >= ranks) {
          EXPECT_FALSE(of_rank.empty());
        }
      }
      if (step + 1 < steps.size()) {
        EXPECT_GE(expected[step].size(), ranks);
      }
      const Sampler sampler(options, {.rank = 0, .world_size = world});
      const auto samples = sampler.samples(step, from, epoch);
      EXPECT_EQ(samples.of_all, expected[step].size());
      const auto has_as_many = [&](const Numbers& of_rank) { return of_rank.size() == steps[step].front().size(); };
      EXPECT_EQ(samples.are_even, std::ranges::all_of(steps[step], has_as_many));
      EXPECT_EQ(sampler.position_after(step, from, epoch) + expected[step].size(),
                sampler.position_after(step + 1, from, epoch));
    }
  }
}

TEST(SamplerTokens, StepsDependOnTheTokensOfAllRanksAlone) {
  const test::FreshSeed seed;
  Draw draw{std::mt19937_64(seed.value)};
  for (int trial = 0; trial < 50; ++trial) {
    auto options = random_options(draw);
    options.max_tokens = 12 * ((options.max_tokens + 11) / 12);
    const std::uint64_t per_rank = options.max_tokens;
    const std::uint64_t epoch = draw(0, 3);
    options.max_tokens = 12 * per_rank;
    const Steps alone = token_steps_of(options, 1, epoch);
    for (const int world : {2, 3, 4, 12}) {
      options.max_tokens = 12 * per_rank / static_cast<std::uint64_t>(world);
      const Steps steps = token_steps_of(options, world, epoch);
      ASSERT_EQ(steps.size(), alone.size()) << world << " ranks";
      for (std::size_t step = 0; step < steps.size(); ++step) {
        ASSERT_EQ(ascending(of_all_ranks(steps[step])), ascending(of_all_ranks(alone[step])));
      }
    }
  }
}

TEST(SamplerTokens, GoOnAtAnyPositionOnOtherRanksWithoutRepeatingOrSkipping) {
  const test::FreshSeed seed;
  Draw draw{std::mt19937_64(seed.value)};
  for (int trial = 0; trial < 50; ++trial) {
    auto options = random_options(draw);
    const std::uint64_t longest = *std::ranges::max_element(options.lengths);
    const std::uint64_t epoch = draw(0, 3);
    Numbers read;
    std::uint64_t position = 0;
    for (int leg = 0; leg < 4; ++leg) {
      options.max_tokens = longest + draw(0, 100);
      const auto world = static_cast<int>(draw(1, 4));
      const std::uint64_t steps = leg == 3 ? kEveryStep : draw(0, 4);
      for (const auto& step : token_steps_of(options, world, epoch, position, steps)) {
        const auto of_all = of_all_ranks(step);
        read.insert(read.end(), of_all.begin(), of_all.end());
      }
      position = Sampler(options, {.rank = world - 1, .world_size = world}).position_after(steps, position, epoch);
      EXPECT_EQ(position, read.size());
    }
    EXPECT_EQ(position, options.dataset_size);
    ASSERT_EQ(ascending(read), ascending(order_of_epoch(options, epoch)));
  }
}

// Steps of 20 tokens for two ranks: the last one has a single sample.
const std::vector<std::uint32_t> kFewLengths{10, 6, 3, 1, 5, 5, 5, 5, 9};

TEST(SamplerTokens, KeepThePromisesOfEachRemainder) {
  const auto few = [](Remainder remainder) {
    return token_steps_of(token_options(kFewLengths, 10, remainder, Order::sequential), 2, 0);
  };
  const std::vector<Numbers> first{{0}, {1, 2, 3}};
  const std::vector<Numbers> second{{4, 6}, {5, 7}};
  EXPECT_THAT(few(Remainder::exact), ElementsAre(first, second, std::vector<Numbers>{{8}, {}}));
  EXPECT_THAT(few(Remainder::uneven), ElementsAre(first, second, std::vector<Numbers>{{8}}));
  EXPECT_THAT(few(Remainder::pad), ElementsAre(first, second, std::vector<Numbers>{{0}, {8}}));
  EXPECT_THAT(few(Remainder::drop), ElementsAre(first, second));

  const auto end_of = [](Remainder remainder) {
    const Sampler sampler(token_options(kFewLengths, 10, remainder, Order::sequential), {.rank = 1, .world_size = 2});
    return std::vector<std::uint64_t>{sampler.steps(), sampler.batches(), sampler.position_after(kEveryStep),
                                      sampler.covers_exactly_once() ? 1u : 0u};
  };
  EXPECT_THAT(end_of(Remainder::exact), ElementsAre(3, 3, 9, 1));
  EXPECT_THAT(end_of(Remainder::uneven), ElementsAre(3, 2, 9, 1));
  EXPECT_THAT(end_of(Remainder::pad), ElementsAre(3, 3, 9, 0));
  EXPECT_THAT(end_of(Remainder::drop), ElementsAre(2, 2, 8, 0));
  EXPECT_TRUE(Sampler(token_options(kFewLengths, 10, Remainder::pad)).covers_exactly_once());
}

TEST(SamplerTokens, PadGivesEachOfManyRanksASample) {
  const auto steps = token_steps_of(token_options({7, 8}, 8, Remainder::pad, Order::sequential), 5, 0);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_THAT(of_all_ranks(steps[0]), ElementsAre(1, 1, 0, 0, 0));
  EXPECT_THAT(token_steps_of(token_options({7, 8}, 8, Remainder::exact, Order::sequential), 3, 0),
              ElementsAre(std::vector<Numbers>{{1}, {0}, {}}));
}

TEST(SamplerTokens, EndWithTheEpoch) {
  for (const auto remainder : {Remainder::exact, Remainder::uneven, Remainder::pad, Remainder::drop}) {
    const Sampler sampler(token_options(kFewLengths, 10, remainder), {.rank = 1, .world_size = 2});
    EXPECT_EQ(sampler.steps(9), 0u);
    EXPECT_EQ(sampler.batches(9), 0u);
    EXPECT_EQ(sampler.position_after(kEveryStep, 9), 9u);
    EXPECT_THROW(sampler.steps(10), UsageError);
    EXPECT_THROW(sampler.batch(sampler.order(0), sampler.batches()), UsageError);
    EXPECT_THROW(sampler.samples(sampler.steps()), UsageError);
  }
}

TEST(SamplerTokens, HaveTheStepsOfTheEpochOfTheOrder) {
  const test::FreshSeed seed;
  Draw draw{std::mt19937_64(seed.value)};
  std::vector<std::uint32_t> lengths(500);
  for (auto& length : lengths) length = static_cast<std::uint32_t>(draw(1, 50));
  const Sampler sampler(token_options(std::move(lengths), 50));
  for (std::uint64_t epoch = 0; epoch < 5; ++epoch) {
    // In between another epoch is asked for, as an evaluation or the length of a schedule does.
    const auto order = sampler.order(epoch);
    Numbers read;
    for (std::uint64_t step = 0; step < sampler.steps(0, epoch); ++step) {
      sampler.steps(0, epoch + 1);
      for (const auto sample : sampler.batch(order, step)) read.push_back(sample);
    }
    EXPECT_EQ(read, order_of_epoch(token_options(std::vector<std::uint32_t>(500, 1), 1), epoch));
  }
}

// A run may go on with another number of tokens: the order is the same.
TEST(SamplerTokens, FingerprintIsThatOfTheOrder) {
  SamplerOptions plain{.dataset_size = kFewLengths.size(), .batch_size = 4};
  EXPECT_EQ(Sampler(token_options(kFewLengths, 10)).fingerprint(),
            Sampler(token_options(kFewLengths, 50)).fingerprint());
  EXPECT_EQ(Sampler(token_options(kFewLengths, 10)).fingerprint(), Sampler(plain).fingerprint());
}

TEST(SamplerTokens, RefuseLengthsThatCannotBe) {
  const auto refusal = [](const SamplerOptions& options) {
    return message_of<UsageError>([&] { Sampler(options, {.rank = 0, .world_size = 2}); });
  };
  EXPECT_THAT(refusal(token_options({3, 12, 4}, 11)),
              AllOf(HasSubstr("Sample 1 has 12 tokens"), HasSubstr("which is 11")));
  EXPECT_THAT(refusal(token_options({3, 4, 0}, 11)), HasSubstr("Sample 2 has 0 tokens"));
  EXPECT_THAT(refusal(token_options({3, 4}, 0)), HasSubstr("max_tokens is 0"));
  auto options = token_options({3, 4}, 11);
  options.dataset_size = 3;
  EXPECT_THAT(refusal(options), AllOf(HasSubstr("lengths of 2 samples"), HasSubstr("data set has 3")));
  EXPECT_THAT(refusal(token_options({3, 4}, kEveryStep)), HasSubstr("too many for 2 ranks"));
  EXPECT_THAT(refusal(token_options({3, 4}, 11, Remainder::drop)), HasSubstr("no full step"));
  EXPECT_THAT(refusal(token_options({3}, 11, Remainder::uneven)), HasSubstr("leaves some of 2"));
}

}  // namespace
}  // namespace libtrain::data
