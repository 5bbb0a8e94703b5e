#include <libtrain/data/sampler.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/detail/block_order.hpp>
#include <libtrain/data/detail/permutation.hpp>
#include <libtrain/data/loader_state.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Indices = std::vector<std::uint64_t>;
constexpr std::uint64_t kAllSteps = ~std::uint64_t{0};

std::vector<Sampler> samplers(const SamplerOptions& options, int world_size) {
  std::vector<Sampler> ranks;
  for (int rank = 0; rank < world_size; ++rank) ranks.emplace_back(options, Shard{rank, world_size});
  return ranks;
}

Indices batch_of(const Sampler& sampler, std::uint64_t epoch, std::uint64_t step, std::uint64_t from = 0) {
  return sampler.batch(sampler.order(epoch), step, from);
}

Indices sorted(Indices samples) {
  std::sort(samples.begin(), samples.end());
  return samples;
}

// What the ranks read, one after the other in every step; with Order::blocks, which divides a global batch otherwise,
// the positions that the step takes, once it is clear that the ranks have read these. No rank may have more than
// batch_size samples in a step, nor differ from another by more than one.
Indices global_order(const SamplerOptions& options, int world_size, std::uint64_t epoch, std::uint64_t from = 0,
                     std::uint64_t most_steps = kAllSteps) {
  const auto ranks = samplers(options, world_size);
  const EpochOrder epoch_order = ranks[0].order(epoch);
  Indices order;
  for (std::uint64_t step = 0; step < std::min(most_steps, ranks[0].steps(from)); ++step) {
    std::vector<std::size_t> sizes;
    Indices read;
    for (const auto& sampler : ranks) {
      const bool has_one = step < sampler.batches(from);
      const Indices batch = has_one ? sampler.batch(epoch_order, step, from) : Indices{};
      sizes.push_back(batch.size());
      read.insert(read.end(), batch.begin(), batch.end());
    }
    if (options.order == Order::blocks) {
      const std::uint64_t begin = from + step * options.batch_size * static_cast<std::uint64_t>(world_size);
      Indices taken;
      for (std::uint64_t i = 0; i < read.size(); ++i) taken.push_back(epoch_order((begin + i) % options.dataset_size));
      EXPECT_EQ(sorted(read), sorted(taken));
      read = taken;
    }
    order.insert(order.end(), read.begin(), read.end());
    const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
    EXPECT_LE(*most, options.batch_size);
    EXPECT_LE(*most - *least, options.remainder == Remainder::pad ? 0u : 1u);
  }
  return order;
}

Indices epoch_order(const SamplerOptions& options, std::uint64_t epoch) {
  const detail::Permutation permutation(options.dataset_size, options.seed, epoch);
  const detail::BlockOrder blocks(options.blocks, options.blocks_at_once, options.seed, epoch);
  Indices order;
  for (std::uint64_t i = 0; i < options.dataset_size; ++i) {
    if (options.order == Order::shuffled) order.push_back(permutation(i));
    if (options.order == Order::sequential) order.push_back(i);
    if (options.order == Order::blocks) order.push_back(blocks(i));
  }
  return order;
}

// The rest of an epoch, computed from the definition of each remainder alone.
Indices rest_of_epoch(const SamplerOptions& options, int world_size, std::uint64_t epoch, std::uint64_t from) {
  const Indices order = epoch_order(options, epoch);
  const auto world = static_cast<std::size_t>(world_size);
  Indices rest(order.begin() + static_cast<std::ptrdiff_t>(from), order.end());
  if (options.remainder == Remainder::drop) rest.resize(rest.size() - rest.size() % (options.batch_size * world));
  for (std::size_t i = 0; options.remainder == Remainder::pad && rest.size() % world != 0; ++i) {
    rest.push_back(order[i % order.size()]);
  }
  return rest;
}

TEST(Sampler, CoversWhatIsLeftOfTheEpochWithoutOverlap) {
  std::mt19937 random(20);
  const auto draw = [&](std::uint64_t low, std::uint64_t high) { return low + random() % (high - low + 1); };
  for (int trial = 0; trial < 200; ++trial) {
    const std::uint64_t world = draw(1, 9);
    SamplerOptions options{.dataset_size = draw(1, 400), .batch_size = draw(1, 40), .seed = draw(0, 9)};
    options.remainder = static_cast<Remainder>(draw(0, 3));
    options.order = static_cast<Order>(draw(0, 2));
    if (options.remainder == Remainder::drop) options.dataset_size += 9 * 40;
    if (options.remainder == Remainder::uneven) options.dataset_size += 9;
    for (std::uint64_t left = options.dataset_size; left > 0; left -= options.blocks.back()) {
      options.blocks.push_back(draw(0, std::min<std::uint64_t>(left, 60)));
    }
    options.blocks_at_once = draw(1, 8);
    const std::uint64_t from = draw(0, 3) == 0 ? 0 : draw(0, options.dataset_size);
    const int world_size = static_cast<int>(world);
    SCOPED_TRACE(::testing::Message() << options.dataset_size << " samples from " << from << " on, " << world
                                      << " ranks, batch " << options.batch_size << ", remainder "
                                      << static_cast<int>(options.remainder) << ", order "
                                      << static_cast<int>(options.order));
    const Indices expected = rest_of_epoch(options, world_size, 3, from);
    ASSERT_EQ(global_order(options, world_size, 3, from), expected);

    const std::uint64_t left = options.dataset_size - from;
    const std::uint64_t fresh = std::min<std::uint64_t>(left, expected.size());
    const Sampler sampler(options, {.rank = 0, .world_size = world_size});
    EXPECT_EQ(sampler.position_after(kAllSteps, from), from + fresh);

    Indices cover = epoch_order(options, 3);
    cover.resize(from);
    cover.insert(cover.end(), expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(fresh));
    std::sort(cover.begin(), cover.end());
    EXPECT_EQ(std::adjacent_find(cover.begin(), cover.end()), cover.end());
    EXPECT_TRUE(cover.empty() || cover.back() < options.dataset_size);
    EXPECT_EQ(cover.size(), options.remainder == Remainder::drop ? from + fresh : options.dataset_size);
  }
}

// 1000 samples in blocks of many sizes, some empty.
SamplerOptions thousand(Order order, Remainder remainder) {
  SamplerOptions options{.dataset_size = 1000, .seed = 5, .order = order, .remainder = remainder};
  for (std::uint64_t block = 0; block < 40; ++block) options.blocks.push_back(block % 4 * 10 + block % 2 * 20);
  options.blocks_at_once = 3;
  return options;
}

TEST(Sampler, GlobalOrderDoesNotDependOnTheWorldSize) {
  for (const Order order : {Order::shuffled, Order::blocks}) {
    for (const Remainder remainder : {Remainder::pad, Remainder::drop, Remainder::exact, Remainder::uneven}) {
      for (const std::uint64_t from : {0u, 126u, 391u}) {
        SCOPED_TRACE(::testing::Message() << "order " << static_cast<int>(order) << ", remainder "
                                          << static_cast<int>(remainder) << ", from " << from);
        SamplerOptions options = thousand(order, remainder);
        options.batch_size = 18;
        const Indices one_rank = global_order(options, 1, 7, from);
        for (const int world_size : {2, 3, 6}) {
          options.batch_size = static_cast<std::uint64_t>(18 / world_size);
          Indices several_ranks = global_order(options, world_size, 7, from);
          if (remainder == Remainder::pad) {
            EXPECT_GE(several_ranks.size(), one_rank.size());
            several_ranks.resize(one_rank.size());
          }
          EXPECT_EQ(several_ranks, one_rank) << world_size << " ranks";
        }
      }
    }
  }
}

struct Leg {
  int world_size;
  std::uint64_t batch_size;
  std::uint64_t steps;
  std::uint64_t position_after;
};

TEST(Sampler, GoesOnAtAnotherWorldSizeWhereItStood) {
  const std::vector<Leg> legs{{4, 5, 7, 140}, {3, 8, 5, 260}, {1, 9, 11, 359}, {6, 3, kAllSteps, 1000}};
  for (const Order order : {Order::shuffled, Order::sequential, Order::blocks}) {
    for (const Remainder remainder : {Remainder::pad, Remainder::drop, Remainder::exact, Remainder::uneven}) {
      SamplerOptions options = thousand(order, remainder);
      LoaderState state{.seed = options.seed, .epoch = 2, .dataset_size = options.dataset_size};
      Indices read;
      for (const Leg& leg : legs) {
        options.batch_size = leg.batch_size;
        const Indices part = global_order(options, leg.world_size, state.epoch, state.position, leg.steps);
        read.insert(read.end(), part.begin(), part.end());
        const Sampler sampler(options, {.rank = 0, .world_size = leg.world_size});
        state.position = sampler.position_after(leg.steps, state.position);
        // 641 samples are left for the last leg: 35 global batches of 18, and 11 that `drop` leaves out.
        const bool drops = remainder == Remainder::drop && leg.steps == kAllSteps;
        EXPECT_EQ(state.position, drops ? 989u : leg.position_after);
      }
      Indices expected = epoch_order(options, 2);
      if (remainder == Remainder::drop) expected.resize(989);
      // 641 samples do not divide by 6 ranks: one is repeated.
      if (remainder == Remainder::pad) expected.push_back(expected[0]);
      EXPECT_EQ(read, expected) << "order " << static_cast<int>(order) << ", remainder " << static_cast<int>(remainder);
    }
  }
}

// Two blocks at a time, 4 ranks of 5 samples in steps of 20: by hand from the order of the epoch.
TEST(Sampler, GivesNeighboursOfAGlobalBatchToOneRankInTheOrderOfTheEpoch) {
  SamplerOptions options{.dataset_size = 80, .batch_size = 5, .seed = 3, .order = Order::blocks};
  options.blocks = {10, 10, 10, 10, 10, 10, 10, 10};
  options.blocks_at_once = 2;
  const Indices order = epoch_order(options, 1);
  for (std::uint64_t step = 0; step < 4; ++step) {
    const Indices global(order.begin() + static_cast<std::ptrdiff_t>(20 * step),
                         order.begin() + static_cast<std::ptrdiff_t>(20 * step + 20));
    const Indices by_number = sorted(global);
    for (int rank = 0; rank < 4; ++rank) {
      Indices expected;
      for (const auto sample : global) {
        const auto place = std::lower_bound(by_number.begin(), by_number.end(), sample) - by_number.begin();
        if (place / 5 == rank) expected.push_back(sample);
      }
      EXPECT_EQ(batch_of(Sampler(options, {.rank = rank, .world_size = 4}), 1, step), expected);
    }
  }
}

// The blocks that all ranks together read in an epoch, each of which keeps the 16 that it has used last, for each block
// of the data set.
double blocks_read_by(int world_size, std::uint64_t batch_size) {
  constexpr std::uint64_t kBlock = 100;
  SamplerOptions options{.dataset_size = 512 * kBlock, .batch_size = batch_size, .seed = 1, .order = Order::blocks};
  options.blocks = Indices(512, kBlock);
  const auto ranks = samplers(options, world_size);
  const EpochOrder epoch_order = ranks[0].order(0);
  std::uint64_t reads = 0;
  for (const Sampler& rank : ranks) {
    Indices kept;
    for (std::uint64_t step = 0; step < rank.batches(); ++step) {
      for (const std::uint64_t sample : rank.batch(epoch_order, step)) {
        const auto found = std::find(kept.begin(), kept.end(), sample / kBlock);
        if (found == kept.end()) ++reads;
        if (found != kept.end()) kept.erase(found);
        kept.push_back(sample / kBlock);
        if (kept.size() > 16) kept.erase(kept.begin());
      }
    }
  }
  return static_cast<double>(reads) / 512;
}

// Each rank would read nearly every block: 1, 4, 16 and 64 times the data set, and more. At least as many as ranks take
// samples of a block in one step are needed: 64 ranks of 32 samples read 64 blocks of 100 for every 20.48.
TEST(Sampler, HasABlockReadByFewRanks) {
  EXPECT_EQ(blocks_read_by(1, 32), 1.0);
  EXPECT_LT(blocks_read_by(4, 32), 2.0);
  EXPECT_LT(blocks_read_by(16, 32), 4.0);
  EXPECT_LT(blocks_read_by(64, 32), 5.0);
  EXPECT_LT(blocks_read_by(64, 256), 2.0);
}

TEST(Sampler, PositionStopsAtTheEndOfTheEpoch) {
  SamplerOptions options{.dataset_size = 10, .batch_size = 2};
  const auto position_after = [&](std::uint64_t steps, std::uint64_t from) {
    return Sampler(options, {.rank = 1, .world_size = 2}).position_after(steps, from);
  };
  for (const Remainder remainder : {Remainder::pad, Remainder::exact, Remainder::uneven}) {
    options.remainder = remainder;
    EXPECT_EQ(position_after(0, 0), 0u);
    EXPECT_EQ(position_after(1, 0), 4u);
    EXPECT_EQ(position_after(2, 0), 8u);
    EXPECT_EQ(position_after(3, 0), 10u);
    EXPECT_EQ(position_after(kAllSteps, 0), 10u);
    EXPECT_EQ(position_after(1, 3), 7u);
    EXPECT_EQ(position_after(2, 3), 10u);
    EXPECT_EQ(position_after(2, 10), 10u);
  }
  options.remainder = Remainder::drop;
  EXPECT_EQ(position_after(1, 0), 4u);
  EXPECT_EQ(position_after(kAllSteps, 0), 8u);
  EXPECT_EQ(position_after(2, 3), 7u);
  EXPECT_EQ(position_after(1, 7), 7u);
}

TEST(Sampler, HasNoBatchAtTheEndOfTheEpoch) {
  for (const Remainder remainder : {Remainder::pad, Remainder::drop, Remainder::exact, Remainder::uneven}) {
    // One global batch: the least of which `drop` has a step.
    const Sampler sampler({.dataset_size = 6, .batch_size = 2, .remainder = remainder}, {.rank = 1, .world_size = 3});
    EXPECT_EQ(sampler.steps(6), 0u);
    EXPECT_EQ(sampler.batches(6), 0u);
    EXPECT_THROW(batch_of(sampler, 0, 0, 6), UsageError);
  }
}

// How many samples the ranks read from a position on beyond those that are left.
std::uint64_t repeated(const SamplerOptions& options, int world_size, std::uint64_t from) {
  std::uint64_t read = 0;
  for (const Sampler& sampler : samplers(options, world_size)) {
    for (std::uint64_t step = 0; step < sampler.steps(from); ++step) read += batch_of(sampler, 0, step, from).size();
  }
  return read - (options.dataset_size - from);
}

TEST(Sampler, PadGivesEveryRankEquallyManyInEveryStep) {
  const SamplerOptions options{.dataset_size = 1437, .batch_size = 32};
  for (std::uint64_t step = 0; step < 12; ++step) {
    for (const Sampler& sampler : samplers(options, 4)) {
      ASSERT_EQ(sampler.steps(), 12u);
      EXPECT_EQ(batch_of(sampler, 0, step).size(), step < 11 ? 32u : 8u);
    }
  }
  EXPECT_EQ(repeated(options, 4, 0), 3u);
}

TEST(Sampler, PadsWhatIsLeftOnly) {
  const SamplerOptions options{.dataset_size = 10, .batch_size = 2};
  EXPECT_EQ(repeated(options, 4, 0), 2u);
  EXPECT_EQ(repeated(options, 4, 6), 0u);
  EXPECT_EQ(repeated(options, 4, 7), 1u);
  EXPECT_EQ(repeated(options, 4, 9), 3u);
}

TEST(Sampler, ExactMayLeaveARankWithoutSamples) {
  const SamplerOptions options{.dataset_size = 10, .batch_size = 2, .remainder = Remainder::exact};
  std::vector<std::size_t> last_sizes;
  for (const Sampler& sampler : samplers(options, 4)) {
    EXPECT_EQ(sampler.batches(), 2u);
    last_sizes.push_back(batch_of(sampler, 0, 1).size());
  }
  EXPECT_EQ(last_sizes, (std::vector<std::size_t>{1, 1, 0, 0}));
  EXPECT_EQ(global_order({.dataset_size = 2, .order = Order::sequential, .remainder = Remainder::exact}, 5, 0),
            (Indices{0, 1}));
}

Indices uneven_batches(std::uint64_t dataset_size, std::uint64_t from = 0) {
  Indices counts;
  for (const Sampler& sampler :
       samplers({.dataset_size = dataset_size, .batch_size = 2, .remainder = Remainder::uneven}, 4)) {
    counts.push_back(sampler.batches(from));
  }
  return counts;
}

TEST(Sampler, UnevenGivesARankWithoutSamplesInTheLastStepOneBatchLess) {
  EXPECT_EQ(uneven_batches(8), (Indices{1, 1, 1, 1}));
  EXPECT_EQ(uneven_batches(10), (Indices{2, 2, 1, 1}));
  EXPECT_EQ(uneven_batches(13), (Indices{2, 2, 2, 2}));
  EXPECT_EQ(uneven_batches(4), (Indices{1, 1, 1, 1}));
  EXPECT_EQ(uneven_batches(10, 1), (Indices{2, 1, 1, 1}));
  EXPECT_EQ(uneven_batches(10, 7), (Indices{1, 1, 1, 0}));
  EXPECT_EQ(uneven_batches(10, 10), (Indices{0, 0, 0, 0}));

  const SamplerOptions options{.dataset_size = 10, .batch_size = 2, .remainder = Remainder::uneven};
  const auto ranks = samplers(options, 4);
  for (const Sampler& sampler : ranks) EXPECT_EQ(sampler.steps(), 2u);
  EXPECT_EQ(batch_of(ranks[1], 0, 1).size(), 1u);
  EXPECT_THAT(message_of<UsageError>([&] { batch_of(ranks[2], 0, 1); }), HasSubstr("rank 2 from position 0 on is 1"));
}

TEST(Sampler, MoreRanksThanSamplesRepeatsThemAll) {
  EXPECT_EQ(global_order({.dataset_size = 3, .batch_size = 4, .order = Order::sequential}, 8, 0),
            (Indices{0, 1, 2, 0, 1, 2, 0, 1}));
}

TEST(Sampler, SequentialKeepsTheOrderOfTheData) {
  const Sampler sampler({.dataset_size = 10, .batch_size = 3, .order = Order::sequential},
                        {.rank = 1, .world_size = 2});
  EXPECT_EQ(batch_of(sampler, 4, 0), (Indices{3, 4, 5}));
  EXPECT_EQ(batch_of(sampler, 4, 1), (Indices{8, 9}));
  EXPECT_EQ(batch_of(sampler, 4, 0, 2), (Indices{5, 6, 7}));
}

TEST(Sampler, RefusesAPositionBeyondAnOrder) {
  for (const Order order : {Order::shuffled, Order::sequential, Order::blocks}) {
    const Sampler sampler(thousand(order, Remainder::pad));
    EXPECT_THROW(sampler.order(6)(1000), UsageError);
  }
}

TEST(Sampler, EpochsAndSeedsGiveDifferentOrders) {
  for (const Order by : {Order::shuffled, Order::blocks}) {
    const auto order = [by](std::uint64_t seed, std::uint64_t epoch) {
      SamplerOptions options = thousand(by, Remainder::exact);
      options.seed = seed;
      return global_order(options, 1, epoch);
    };
    EXPECT_EQ(order(1, 1), order(1, 1));
    EXPECT_NE(order(1, 1), order(1, 2));
    EXPECT_NE(order(1, 1), order(2, 1));
  }
}

std::string error_of(const SamplerOptions& options, Shard shard = {}) {
  return message_of<UsageError>([&] { Sampler{options, shard}; });
}

TEST(Sampler, RefusesWhatMakesNoSense) {
  EXPECT_THAT(error_of({.dataset_size = 10, .batch_size = 0}), HasSubstr("batch_size is 0"));
  EXPECT_THAT(error_of({.dataset_size = 0, .batch_size = 1}), HasSubstr("empty"));
  EXPECT_THAT(error_of({.dataset_size = 10}, {4, 4}), HasSubstr("Rank 4 is outside a world of 4"));
  EXPECT_THAT(error_of({.dataset_size = 10}, {-1, 4}), HasSubstr("Rank -1"));
  EXPECT_THAT(error_of({.dataset_size = 10}, {0, 0}), HasSubstr("world of 0"));
  EXPECT_THAT(error_of({.dataset_size = 127, .batch_size = 32, .remainder = Remainder::drop}, {0, 4}),
              AllOf(HasSubstr("128"), HasSubstr("127")));
  EXPECT_THAT(error_of({.dataset_size = 10, .batch_size = ~std::uint64_t{0}}, {0, 2}), HasSubstr("64-bit"));
  EXPECT_THAT(error_of({.dataset_size = ~std::uint64_t{1}}, {0, 2}), HasSubstr("64-bit"));
  EXPECT_THAT(error_of({.dataset_size = 3, .remainder = Remainder::uneven}, {.rank = 0, .world_size = 4}),
              AllOf(HasSubstr("3 samples"), HasSubstr("4 ranks"), HasSubstr("pad instead")));
  EXPECT_THROW(batch_of(Sampler({.dataset_size = 10}), 0, 10), UsageError);
}

TEST(Sampler, RefusesBlocksThatAreNotTheDataSet) {
  EXPECT_THAT(error_of({.dataset_size = 10, .order = Order::blocks}), HasSubstr("Use Order::shuffled"));
  EXPECT_THAT(error_of({.dataset_size = 10, .order = Order::blocks, .blocks = {4, 5}}),
              AllOf(HasSubstr("2 blocks"), HasSubstr("9 samples"), HasSubstr("10")));
  EXPECT_THAT(error_of({.dataset_size = 10, .order = Order::blocks, .blocks = {4, 7}}), HasSubstr("11 samples"));
  EXPECT_THAT(error_of({.dataset_size = 10, .order = Order::blocks, .blocks = {4, 6}, .blocks_at_once = 0}),
              HasSubstr("blocks_at_once is 0"));
}

TEST(Sampler, RefusesAPositionBeyondTheDataSet) {
  const Sampler sampler({.dataset_size = 10});
  EXPECT_THAT(message_of<UsageError>([&] { sampler.steps(11); }),
              AllOf(HasSubstr("Position 11"), HasSubstr("10 samples")));
  EXPECT_THROW(sampler.batches(11), UsageError);
  EXPECT_THROW(batch_of(sampler, 0, 0, 11), UsageError);
  EXPECT_THROW(sampler.position_after(0, 11), UsageError);
}

// Of each sample of an epoch: the positions of its repetitions, in their order.
std::map<std::uint64_t, Indices> repetitions_of(const Sampler& sampler, std::uint64_t size) {
  std::map<std::uint64_t, Indices> positions;
  const EpochOrder order = sampler.order(3);
  for (std::uint64_t position = 0; position < size; ++position) {
    const std::uint64_t number = order(position);
    auto& of_sample = positions[number % size];
    EXPECT_EQ(number / size, of_sample.size()) << "position " << position;
    of_sample.push_back(position);
  }
  EXPECT_THROW(order(size), UsageError);
  return positions;
}

TEST(Sampler, RepeatsSamplesAtADistance) {
  const Sampler sampler({.dataset_size = 5000, .seed = 9, .repetitions = 4});
  const auto positions = repetitions_of(sampler, 5000);
  EXPECT_EQ(positions.size(), 1250u);
  for (const auto& [sample, at] : positions) {
    ASSERT_EQ(at.size(), 4u) << sample;
    // 4096 positions are full windows; of the other 904 a quarter are different samples.
    const std::uint64_t distance = at[0] < 4096 ? kRepetitionDistance : 226;
    for (int i = 1; i < 4; ++i) EXPECT_EQ(at[i] - at[i - 1], distance) << sample;
  }
  // The samples are those of the single order, in its order.
  const auto single = Sampler({.dataset_size = 5000, .seed = 9}).order(3);
  const auto repeated = sampler.order(3);
  for (std::uint64_t i = 0; i < kRepetitionDistance; ++i) EXPECT_EQ(repeated(1024 + i), single(256 + i));
}

TEST(Sampler, RepeatsInAnyNumberOfSamples) {
  for (const std::uint64_t size : {1, 2, 3, 7, 255, 257, 1023, 1025}) {
    for (const std::uint64_t repetitions : {2, 3, 10}) {
      const auto positions = repetitions_of(Sampler({.dataset_size = size, .repetitions = repetitions}), size);
      EXPECT_GE(positions.size(), (size + repetitions - 1) / repetitions);
      EXPECT_LE(positions.size(), (size + repetitions - 1) / repetitions + 1);
      for (const auto& [sample, at] : positions) EXPECT_LE(at.size(), repetitions);
    }
  }
}

TEST(Sampler, DividesRepetitionsAmongRanksAsTheOrderSays) {
  for (const bool in_blocks : {false, true}) {
    SamplerOptions options{.dataset_size = 2048, .batch_size = 64, .repetitions = 2};
    if (in_blocks) {
      options.order = Order::blocks;
      options.blocks = Indices(32, 64);
    }
    EXPECT_EQ(sorted(global_order(options, 4, 0)), sorted(global_order(options, 1, 0)));
    EXPECT_NE(global_order(options, 1, 0), global_order(options, 1, 1));
    EXPECT_NE(Sampler(options).fingerprint(), Sampler({.dataset_size = 2048}).fingerprint());
    EXPECT_FALSE(Sampler(options).covers_exactly_once());
  }
}

TEST(Sampler, GivesTheRepetitionsOfASampleInAStepToDifferentRanks) {
  for (const auto kind : {Order::shuffled, Order::blocks}) {
    const SamplerOptions options{.dataset_size = 4096,
                                 .batch_size = 128,
                                 .order = kind,
                                 .blocks = kind == Order::blocks ? Indices(32, 128) : Indices{},
                                 .repetitions = 4};
    for (const auto& sampler : samplers(options, 8)) {
      const auto order = sampler.order(0);
      for (std::uint64_t step = 0; step < sampler.steps(); ++step) {
        std::set<std::uint64_t> images;
        for (const auto number : sampler.batch(order, step)) images.insert(number % 4096);
        EXPECT_EQ(images.size(), 128u);
      }
    }
    // Batches that do not fit into the distance of the repetitions.
    auto odd = options;
    odd.batch_size = 100;
    for (const auto& sampler : samplers(odd, 4)) {
      const auto order = sampler.order(0);
      for (std::uint64_t step = 0; step < sampler.steps(); ++step) {
        std::set<std::uint64_t> images;
        for (const auto number : sampler.batch(order, step)) images.insert(number % 4096);
        EXPECT_EQ(images.size(), sampler.batch(order, step).size()) << step;
      }
    }
  }
}

TEST(Sampler, RefusesRepetitionsOutOfRange) {
  EXPECT_THAT(error_of({.dataset_size = 10, .repetitions = 0}), HasSubstr("repetitions is 0"));
  EXPECT_THAT(error_of({.dataset_size = 10, .repetitions = 1001}), HasSubstr("1 to 1000"));
}

TEST(Sampler, KnowsHowManySamplesAStepHas) {
  for (const auto remainder : {Remainder::pad, Remainder::drop, Remainder::exact, Remainder::uneven}) {
    for (const std::uint64_t from : {0, 5}) {
      std::vector<std::uint64_t> of_ranks(10);
      std::vector<std::uint64_t> of_all(10);
      for (int rank = 0; rank < 3; ++rank) {
        const Sampler sampler({.dataset_size = 23, .batch_size = 2, .remainder = remainder},
                              {.rank = rank, .world_size = 3});
        for (std::uint64_t step = 0; step < sampler.steps(from); ++step) {
          const auto samples = sampler.samples(step, from);
          const bool has_batch = step < sampler.batches(from);
          EXPECT_EQ(samples.of_rank, has_batch ? batch_of(sampler, 0, step, from).size() : 0U);
          of_ranks[step] += samples.of_rank;
          of_all[step] = samples.of_all;
        }
        EXPECT_THROW(sampler.samples(sampler.steps(from), from), UsageError);
      }
      EXPECT_EQ(of_ranks, of_all);
    }
  }
}

}  // namespace
}  // namespace libtrain::data
