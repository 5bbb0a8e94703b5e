#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/data_loader.hpp>

#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using libtrain::test::TemporaryFolder;
using ::testing::HasSubstr;

// Sample i has the label i. Some are damaged; those of `blocks` are adjacent.
class LabelDataset : public Dataset {
 public:
  explicit LabelDataset(std::uint64_t size, std::set<std::uint64_t> damaged = {})
      : size_(size), damaged_(std::move(damaged)) {}
  std::uint64_t size() const override { return size_; }
  Sample get(std::uint64_t index, SampleRandom& /*random*/) const override {
    if (damaged_.contains(index)) throw EnvironmentError("file " + std::to_string(index) + " is damaged");
    return {at::full({1, 1, 1}, 1, at::kFloat), static_cast<std::int64_t>(index)};
  }
  SampleOrigin origin(std::uint64_t index) const override {
    return {.path = (index == other_at ? "other " : "file ") + std::to_string(index), .offset = 8 * index};
  }
  std::vector<std::uint64_t> blocks() const override { return in_blocks; }

  std::vector<std::uint64_t> in_blocks = {};
  std::uint64_t other_at = ~std::uint64_t{0};

 private:
  std::uint64_t size_;
  std::set<std::uint64_t> damaged_;
};

using Indices = std::vector<std::int64_t>;

void append(Indices& all, const Batch& batch) {
  const auto* labels = batch.labels.const_data_ptr<std::int64_t>();
  all.insert(all.end(), labels, labels + batch.size());
}

struct Part {
  Indices labels;  // of all ranks, step by step
  LoaderState state;
};

// The batches of all ranks, up to `steps` of them, after `start`.
Part run(const Dataset& data, int world_size, DataLoaderOptions options, const LoaderState& start,
         std::uint64_t steps) {
  options.seed = start.seed;
  std::vector<std::vector<Batch>> batches(static_cast<std::size_t>(world_size));
  Part part;
  for (int rank = 0; rank < world_size; ++rank) {
    DataLoader loader{data, options, Shard{.rank = rank, .world_size = world_size}};
    auto epoch = loader.resume(start);
    for (std::uint64_t step = 0; step < steps; ++step) {
      auto batch = epoch.next();
      if (!batch) break;
      batches[static_cast<std::size_t>(rank)].push_back(*batch);
    }
    part.state = epoch.state();
  }
  for (std::uint64_t step = 0; step < steps; ++step) {
    for (const auto& of_rank : batches) {
      if (step < of_rank.size()) append(part.labels, of_rank[step]);
    }
  }
  return part;
}

// The samples of each step in the order of the epoch: with Order::blocks a step divides them among ranks otherwise.
void order_steps(Indices& labels, std::ptrdiff_t global_batch, const Indices& whole) {
  const auto position = [&](std::int64_t label) { return std::find(whole.begin(), whole.end(), label); };
  const auto before = [&](std::int64_t left, std::int64_t right) { return position(left) < position(right); };
  for (auto step = labels.begin(); step != labels.end();) {
    const auto end = step + std::min(global_batch, labels.end() - step);
    std::sort(step, end, before);
    step = end;
  }
}

constexpr std::uint64_t kAll = 1'000'000;

TEST(LoaderResume, GoesOnAtAnyWorldSizeAndBatchSize) {
  LabelDataset data(101);
  data.in_blocks = std::vector<std::uint64_t>(10, 10);
  data.in_blocks.push_back(1);
  for (const auto order : {Order::shuffled, Order::sequential, Order::blocks}) {
    const DataLoaderOptions options{
        .batch_size = 4, .workers = 1, .order = order, .remainder = Remainder::exact, .blocks_at_once = 3};
    const LoaderState start{.seed = 7, .epoch = 2, .position = 0, .dataset_size = 101};
    const Indices whole = run(data, 1, options, start, kAll).labels;
    ASSERT_EQ(whole.size(), 101u);
    for (const std::uint64_t stop : {0, 1, 3, 8, 9}) {
      Part before = run(data, 3, options, start, stop);
      EXPECT_EQ(before.state.position, std::min<std::uint64_t>(stop * 12, 101));
      DataLoaderOptions other = options;
      other.batch_size = 5;
      other.workers = 2;
      Part after = run(data, 2, other, before.state, kAll);
      if (order == Order::blocks) {
        order_steps(before.labels, 12, whole);
        order_steps(after.labels, 10, whole);
      }
      Indices both = before.labels;
      both.insert(both.end(), after.labels.begin(), after.labels.end());
      EXPECT_EQ(both, whole) << "stopped after " << stop << " steps";
      EXPECT_EQ(after.state.position, 101u);
    }
  }
}

TEST(LoaderResume, CountsWhatWasTakenAndNotWhatWasReadAhead) {
  const LabelDataset data(100);
  DataLoader loader{data, {.batch_size = 10, .workers = 2, .prefetch = 5}};
  auto epoch = loader.epoch(4);
  LoaderState expected{
      .seed = 0, .epoch = 4, .position = 0, .dataset_size = 100, .order = loader.sampler().fingerprint()};
  expected.content = detail::digest_of(data.identity());
  expected.data = detail::summary_of(data.identity());
  expected.bad_samples = {{}};
  EXPECT_EQ(epoch.state(), expected);
  const auto first = epoch.next();
  const auto second = epoch.next();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(epoch.state().position, 20u);
  EXPECT_EQ(loader.epoch(4, 7).state().position, 70u);
}

TEST(LoaderResume, RefusesTheStateOfOtherDataOrAnotherSeed) {
  const LabelDataset data(100);
  DataLoader loader{data, {.seed = 3}};
  EXPECT_THROW(loader.resume({.seed = 4, .dataset_size = 100}), UsageError);
  EXPECT_THROW(loader.resume({.seed = 3, .dataset_size = 99}), UsageError);
  EXPECT_THROW(loader.resume({.seed = 3, .position = 101, .dataset_size = 100}), UsageError);
  DataLoader sequential{data, {.seed = 3, .order = Order::sequential}};
  EXPECT_THROW(loader.resume(sequential.epoch(0).state()), UsageError);
  EXPECT_EQ(loader.resume(loader.epoch(1, 2).state()).state().position, 64u);
}

TEST(LoaderResume, RefusesTheStateOfOtherDataOfTheSameSize) {
  constexpr std::uint64_t kSize = 5000;
  const LabelDataset data(kSize);
  DataLoader before{data};
  const LoaderState state = before.epoch(0).state();
  for (const std::uint64_t index : {std::uint64_t{0}, std::uint64_t{2502}, kSize - 1}) {
    LabelDataset other(kSize);
    other.other_at = index;
    DataLoader loader{other};
    const std::string message = message_of<UsageError>([&] { loader.resume(state); });
    EXPECT_THAT(message, ::testing::AllOf(HasSubstr("5000 samples"), HasSubstr("other data"))) << index;
  }
  const LabelDataset same(kSize);
  DataLoader after{same};
  EXPECT_NO_THROW(after.resume(state));
}

// States of an early version have neither.
TEST(LoaderResume, ComparesNoContentOrOrderThatTheStateDoesNotHave) {
  LabelDataset data(100);
  DataLoader loader{data, {.seed = 3}};
  LoaderState state = loader.epoch(2, 1).state();
  data.other_at = 0;
  DataLoader other{data, {.seed = 3, .order = Order::sequential}};
  EXPECT_THROW(other.resume(state), UsageError);
  state.content = state.order = 0;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(other.resume(state).state().position, 32u);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("has no digest of the data and of the order"));
}

TEST(LoaderResume, RefusesTheStateOfOtherBlocks) {
  using Blocks = std::vector<std::uint64_t>;
  const auto state_of = [](const Blocks& blocks, Order order, std::uint64_t blocks_at_once) {
    LabelDataset data(20);
    data.in_blocks = blocks;
    DataLoader loader{data, {.order = order, .blocks_at_once = blocks_at_once}};
    return loader.epoch(0).state();
  };
  LabelDataset data(20);
  data.in_blocks = Blocks{5, 5, 10};
  DataLoader loader{data, {.order = Order::blocks, .blocks_at_once = 2}};
  EXPECT_NO_THROW(loader.resume(state_of(Blocks{5, 5, 10}, Order::blocks, 2)));
  EXPECT_THROW(loader.resume(state_of(Blocks{5, 5, 10}, Order::blocks, 3)), UsageError);
  EXPECT_THROW(loader.resume(state_of(Blocks{5, 10, 5}, Order::blocks, 2)), UsageError);
  EXPECT_THROW(loader.resume(state_of(Blocks{5, 5, 10}, Order::shuffled, 2)), UsageError);
  // The order does not depend on these options.
  DataLoader shuffled{data, {.blocks_at_once = 2}};
  EXPECT_NO_THROW(shuffled.resume(state_of(Blocks{5, 15}, Order::shuffled, 3)));
}

// Records the calls of its read-ahead.
class Foretold : public LabelDataset {
 public:
  using LabelDataset::LabelDataset;

  std::unique_ptr<ReadAhead> read_ahead(const ReadingIndices& order) const override {
    told = order();
    return std::make_unique<Ahead>(*this);
  }

  mutable std::vector<std::uint64_t> told = {};
  mutable std::vector<std::uint64_t> positions = {};

 private:
  struct Ahead : ReadAhead {
    explicit Ahead(const Foretold& owner) : owner(owner) {}
    void advance(std::uint64_t position) override { owner.positions.push_back(position); }
    const Foretold& owner;
  };
};

// 20 samples are left for two ranks, which read four in a step and two in the last.
TEST(LoaderResume, TellsTheReadAheadWhatThisRankHasLeftAndHowFarItIs) {
  const Foretold data(30);
  DataLoader loader{data,
                    {.batch_size = 4, .order = Order::sequential, .remainder = Remainder::exact},
                    Shard{.rank = 1, .world_size = 2}};
  auto epoch = loader.resume({.epoch = 3, .position = 10, .dataset_size = 30});
  EXPECT_THAT(data.told, ::testing::ElementsAre(14, 15, 16, 17, 22, 23, 24, 25, 28, 29));
  while (epoch.next()) {
  }
  EXPECT_THAT(data.positions, ::testing::ElementsAre(4, 8, 10));
}

TEST(LoaderResume, OfRanksThatHaveUnequallyManyBatches) {
  const LabelDataset data(10);
  const LoaderState start{.seed = 1, .dataset_size = 10};
  Indices all = run(data, 4, {.batch_size = 2, .remainder = Remainder::uneven}, start, kAll).labels;
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, (Indices{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  std::vector<std::uint64_t> batches;
  for (int rank = 0; rank < 4; ++rank) {
    DataLoader loader{data, {.batch_size = 2, .remainder = Remainder::uneven}, Shard{rank, 4}};
    batches.push_back(loader.batches_per_epoch());
    auto epoch = loader.epoch(0);
    EXPECT_TRUE(epoch.next());
    EXPECT_EQ(epoch.state().position, 8u) << rank;  // the same on all, whether or not it was the last one of this rank
    while (const auto batch = epoch.next()) EXPECT_GT(batch->size(), 0);
    EXPECT_EQ(epoch.state().position, 10u);  // also if this rank finishes early
  }
  EXPECT_EQ(batches, (std::vector<std::uint64_t>{2, 2, 1, 1}));
}

TEST(LoaderResume, BlockShuffleNeedsBlocks) {
  const LabelDataset data(10);
  EXPECT_THROW(DataLoader(data, {.order = Order::blocks}), UsageError);
}

Indices labels_of_epoch(DataLoader& loader, std::uint64_t epoch) {
  Indices all;
  for (auto& batch : loader.epoch(epoch)) append(all, batch);
  return all;
}

TEST(BadSamplesOfALoader, AreAnErrorByDefault) {
  const LabelDataset data(20, {13});
  DataLoader loader{data, {.batch_size = 5, .order = Order::sequential}};
  auto epoch = loader.epoch(0);
  ASSERT_TRUE(epoch.next());
  ASSERT_TRUE(epoch.next());
  try {
    epoch.next();
    FAIL() << "no error";
  } catch (const EnvironmentError& error) {
    EXPECT_STREQ(error.what(), "file 13 is damaged");
  }
}

TEST(BadSamplesOfALoader, AreReplacedAlikeOnAllRanksAndInAllRuns) {
  const LabelDataset data(40, {3, 17, 18, 39});
  const auto labels = [&](int world_size, int workers, std::uint64_t epoch) {
    std::vector<Indices> ranks;
    for (int rank = 0; rank < world_size; ++rank) {
      DataLoader loader{data,
                        {.batch_size = 4 / static_cast<std::uint64_t>(world_size),
                         .workers = workers,
                         .seed = 9,
                         .order = Order::sequential,
                         .bad_samples = {.maximum_count = 10}},
                        Shard{rank, world_size}};
      ranks.push_back(labels_of_epoch(loader, epoch));
      EXPECT_LE(loader.statistics().bad_samples, 4u);
    }
    Indices all;
    for (std::size_t i = 0; i < ranks[0].size(); i += 4 / static_cast<std::size_t>(world_size)) {
      for (const auto& rank : ranks) {
        for (std::size_t k = 0; k < 4 / static_cast<std::size_t>(world_size); ++k) all.push_back(rank[i + k]);
      }
    }
    return all;
  };
  const Indices expected = labels(1, 0, 0);
  ASSERT_EQ(expected.size(), 40u);
  for (std::int64_t i = 0; i < 40; ++i) {
    const auto index = static_cast<std::size_t>(i);
    if (i == 3 || i == 17 || i == 18 || i == 39) {
      EXPECT_THAT(expected[index],
                  ::testing::AllOf(::testing::Ne(3), ::testing::Ne(17), ::testing::Ne(18), ::testing::Ne(39)));
    } else {
      EXPECT_EQ(expected[index], i);
    }
  }
  EXPECT_EQ(labels(1, 3, 0), expected);
  EXPECT_EQ(labels(2, 2, 0), expected);
  EXPECT_EQ(labels(4, 1, 0), expected);
  EXPECT_NE(labels(1, 1, 1), expected);  // another epoch, other replacements
}

TEST(BadSamplesOfALoader, AreListedInTheRunsFolder) {
  const TemporaryFolder folder;
  const LabelDataset data(40, {3, 17});
  DataLoader loader{data,
                    {.batch_size = 8, .bad_samples = {.maximum_count = 5}},
                    RankShard({.rank = 0, .world_size = 1, .seed = 2}, c10::kCPU, folder.path(), "this run")};
  labels_of_epoch(loader, 0);
  labels_of_epoch(loader, 1);
  EXPECT_EQ(loader.statistics().bad_samples, 2u);
  std::ifstream file(folder / "bad_samples.jsonl");
  std::set<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.insert(line);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines, ::testing::Contains(::testing::AllOf(
                         HasSubstr("\"path\":\"file 17\""), HasSubstr("\"offset\":136"),
                         HasSubstr("\"reason\":\"file 17 is damaged\""), HasSubstr("\"run_id\":\"this run\""))));
}

TEST(BadSamplesOfALoader, BeyondTheBudgetEndTheEpoch) {
  const LabelDataset data(40, {1, 2, 3, 4, 5});
  DataLoader loader{data, {.batch_size = 8, .workers = 3, .bad_samples = {.maximum_count = 4}}};
  try {
    labels_of_epoch(loader, 0);
    FAIL() << "no error";
  } catch (const EnvironmentError& error) {
    EXPECT_THAT(error.what(), HasSubstr("more than 4 of 40 samples are bad"));
  }
}

TEST(BadSamplesOfALoader, MayBeHalfOfAll) {
  std::set<std::uint64_t> even;
  for (std::uint64_t i = 0; i < 200; i += 2) even.insert(i);
  const LabelDataset data(200, even);
  const TemporaryFolder folder;
  DataLoader loader{data,
                    {.batch_size = 10, .order = Order::sequential, .bad_samples = {.maximum_rate = 0.5}},
                    RankShard({.rank = 0, .world_size = 1}, c10::kCPU, folder.path())};
  const Indices labels = labels_of_epoch(loader, 0);
  EXPECT_EQ(labels.size(), 200u);
  EXPECT_TRUE(std::all_of(labels.begin(), labels.end(), [](std::int64_t label) { return label % 2 == 1; }));
  EXPECT_EQ(loader.statistics().bad_samples, 100u);
}

// Two runs find two bad samples each, which use up the budget, and the third run finds the fifth.
TEST(BadSamplesOfALoader, OfTheRunBeforeCountInTheOneThatGoesOn) {
  const LabelDataset data(1000, {0, 1, 2, 3, 5});
  const DataLoaderOptions options{
      .batch_size = 1, .workers = 0, .seed = 3, .order = Order::sequential, .bad_samples = {.maximum_count = 4}};
  LoaderState state;
  for (const int batches : {2, 3}) {
    DataLoader loader{data, options};
    auto epoch = state.dataset_size == 0 ? loader.epoch(0) : loader.resume(state);
    for (int batch = 0; batch < batches; ++batch) ASSERT_TRUE(epoch.next());
    state = epoch.state();
  }
  DataLoader last{data, options};
  auto epoch = last.resume(state);
  EXPECT_THAT(message_of<EnvironmentError>([&] { epoch.next(); }), HasSubstr("more than 4 of 1000 samples are bad"));
}

// Ranks 0, 1 and 2 of the previous run have found 3, 1 and 2 bad samples.
TEST(BadSamplesOfALoader, OfTheRanksBeforeAreDividedAmongTheRanksAfter) {
  const LabelDataset data(1000);
  DataLoader any{data};
  LoaderState state = any.epoch(0).state();
  state.bad_samples = {{1, 5, 9}, {9}, {1, 7}};
  const auto counts = [&](int world_size) {
    std::vector<std::uint64_t> counts;
    for (int rank = 0; rank < world_size; ++rank) {
      DataLoader loader{data, {.bad_samples = {.maximum_count = 5}}, Shard{.rank = rank, .world_size = world_size}};
      loader.resume(state);
      counts.push_back(loader.statistics().bad_samples);
    }
    return counts;
  };
  EXPECT_THAT(counts(3), ::testing::ElementsAre(3, 1, 2));
  EXPECT_THAT(counts(5), ::testing::ElementsAre(3, 1, 2, 3, 1));
  EXPECT_THAT(counts(2), ::testing::ElementsAre(4, 1));  // two ranks found the same one
  EXPECT_THAT(counts(1), ::testing::ElementsAre(4));
}

TEST(BadSamplesOfALoader, BeyondTheBudgetAreAnErrorBeforeTheRunGoesOn) {
  const LabelDataset data(100);
  DataLoader loader{data, {.bad_samples = {.maximum_count = 2}}};
  LoaderState state = loader.epoch(0).state();
  state.bad_samples = {{1, 5, 9}};
  EXPECT_THAT(message_of<EnvironmentError>([&] { loader.resume(state); }),
              ::testing::AllOf(HasSubstr("more than 2 of 100 samples are bad"), HasSubstr("3 were found")));
  state.bad_samples = {{100}};
  EXPECT_THAT(message_of<UsageError>([&] { loader.resume(state); }), HasSubstr("bad sample 100"));
}

// A number is drawn for sample 3 before it turns out to be bad.
TEST(BadSamplesOfALoader, LeaveTheirRandomNumbersToTheirReplacements) {
  const LabelDataset data(20);
  const auto draw = [](Sample& sample, SampleRandom& random) {
    const int drawn = random.integer(0, 999'999);
    if (sample.label == 3) throw EnvironmentError("sample 3 is bad");
    sample.label = drawn;
  };
  DataLoader loader{data,
                    {.batch_size = 20,
                     .seed = 4,
                     .order = Order::sequential,
                     .transform = draw,
                     .bad_samples = {.maximum_count = 1}}};
  EXPECT_EQ(labels_of_epoch(loader, 5).at(3), SampleRandom(4, 5, 3).integer(0, 999'999));
  EXPECT_EQ(loader.statistics().bad_samples, 1u);
}

TEST(BadSamplesOfALoader, EveryOneBeingBadEnds) {
  std::set<std::uint64_t> all;
  for (std::uint64_t i = 0; i < 50; ++i) all.insert(i);
  const LabelDataset data(50, all);
  DataLoader loader{data, {.batch_size = 8, .bad_samples = {.maximum_count = 1000}}};
  EXPECT_THROW(loader.epoch(0).next(), EnvironmentError);
}

}  // namespace
}  // namespace libtrain::data
