#include <libtrain/train/evaluate.hpp>

#include <cstdint>
#include <string>

#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/dropout.h>

#include <libtrain/base/error.hpp>
#include <libtrain/observe/task_metrics.hpp>

#include <tests/support/device.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>

namespace libtrain {
namespace {

using test::device;
using test::message_of;
using test::on_ranks;
using ::testing::HasSubstr;

// Sample i is one pixel i with the label i.
class Pixels : public data::Dataset {
 public:
  explicit Pixels(std::uint64_t size) : size_(size) {}
  std::uint64_t size() const override { return size_; }
  data::Sample get(std::uint64_t index, data::SampleRandom& /*random*/) const override {
    return {at::full({1, 1, 1}, static_cast<double>(index), at::kFloat), static_cast<std::int64_t>(index)};
  }

 private:
  std::uint64_t size_;
};

data::Shard shard_of(const Communicator& communicator) {
  return {.rank = communicator.rank(), .world_size = communicator.world_size()};
}

TEST(Evaluate, CountsEachSampleOnceWhateverTheNumberOfRanks) {
  on_ranks([](Communicator& communicator) {
    // 1 to 7 samples: fewer than ranks, and no multiple of them.
    for (std::uint64_t size = 1; size <= 7; ++size) {
      const Pixels pixels(size);
      data::DataLoader loader{
          pixels, {.batch_size = 2, .workers = 1, .remainder = data::Remainder::exact}, shard_of(communicator)};
      torch::nn::Dropout model;
      const Evaluation result = evaluate(*model, loader, communicator,
                                         [](const data::Batch& batch) { return batch.labels.to(device()).lt(3); });
      EXPECT_EQ(result.samples, static_cast<std::int64_t>(size));
      EXPECT_EQ(result.mean(), static_cast<double>(std::min<std::uint64_t>(size, 3)) / static_cast<double>(size));
    }
  });
}

TEST(Evaluate, AddsUpSeveralMeasures) {
  on_ranks([](Communicator& communicator) {
    const Pixels pixels(5);
    data::DataLoader loader{
        pixels, {.batch_size = 3, .workers = 1, .remainder = data::Remainder::exact}, shard_of(communicator)};
    torch::nn::Dropout model;
    const Evaluation result = evaluate(*model, loader, communicator, [](const data::Batch& batch) {
      const auto labels = batch.labels.to(device());
      return at::stack({labels, labels * labels}, 1);
    });
    ASSERT_EQ(result.sums.size(), 2u);
    EXPECT_EQ(result.sums[0], 0 + 1 + 2 + 3 + 4);
    EXPECT_EQ(result.mean(1), (0 + 1 + 4 + 9 + 16) / 5.0);
  });
}

TEST(Evaluate, RunsTheModelInEvaluationModeWithoutGradientsAndRestoresBoth) {
  on_ranks([](Communicator& communicator) {
    const Pixels pixels(4);
    data::DataLoader loader{
        pixels, {.batch_size = 4, .workers = 0, .remainder = data::Remainder::exact}, shard_of(communicator)};
    torch::nn::Dropout model;
    for (const bool is_training : {true, false}) {
      model->train(is_training);
      evaluate(*model, loader, communicator, [&](const data::Batch& batch) {
        EXPECT_FALSE(model->is_training());
        EXPECT_FALSE(at::GradMode::is_enabled());
        return batch.labels;
      });
      EXPECT_EQ(model->is_training(), is_training);
      EXPECT_TRUE(at::GradMode::is_enabled());
    }
  });
}

// As a batch norm that is frozen in a model that trains.
TEST(Evaluate, LeavesEachSubmoduleInItsMode) {
  on_ranks([](Communicator& communicator) {
    const Pixels pixels(4);
    data::DataLoader loader{
        pixels, {.batch_size = 4, .workers = 0, .remainder = data::Remainder::exact}, shard_of(communicator)};
    torch::nn::Dropout frozen;
    torch::nn::Dropout trained;
    torch::nn::ModuleList inner{frozen};
    torch::nn::ModuleList model{inner, trained};
    frozen->eval();
    evaluate(*model, loader, communicator, [&](const data::Batch& batch) {
      EXPECT_FALSE(trained->is_training());
      return batch.labels;
    });
    EXPECT_TRUE(model->is_training());
    EXPECT_TRUE(inner->is_training());
    EXPECT_TRUE(trained->is_training());
    EXPECT_FALSE(frozen->is_training());
  });
}

TEST(Evaluate, RefusesAnotherNumberOfRowsThanSamples) {
  on_ranks([](Communicator& communicator) {
    const Pixels pixels(static_cast<std::uint64_t>(2 * communicator.world_size()));
    data::DataLoader loader{
        pixels, {.batch_size = 2, .workers = 0, .remainder = data::Remainder::exact}, shard_of(communicator)};
    torch::nn::Dropout model;
    EXPECT_THAT(message_of<UsageError>([&] {
                  evaluate(*model, loader, communicator,
                           [](const data::Batch& batch) { return batch.labels.sum().reshape({1}); });
                }),
                HasSubstr("given [1] for a batch of 2"));
  });
}

TEST(Evaluate, RanksThatMeasureDifferentThingsAllLearnIt) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    const Pixels pixels(static_cast<std::uint64_t>(communicator.world_size()));
    data::DataLoader loader{
        pixels, {.batch_size = 1, .workers = 0, .remainder = data::Remainder::exact}, shard_of(communicator)};
    torch::nn::Dropout model;
    EXPECT_THAT(message_of<UsageError>([&] {
                  evaluate(*model, loader, communicator, [&](const data::Batch& batch) {
                    return batch.labels.reshape({1, 1}).expand({1, communicator.rank() == 0 ? 3 : 2});
                  });
                }),
                HasSubstr("2 values per sample on one rank and 3 on another"));
  });
}

TEST(Evaluate, RefusesALoaderThatRepeatsOrLeavesOutSamples) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    const Pixels pixels(static_cast<std::uint64_t>(2 * communicator.world_size() + 1));
    for (const auto remainder : {data::Remainder::pad, data::Remainder::drop}) {
      data::DataLoader loader{pixels, {.batch_size = 1, .workers = 0, .remainder = remainder}, shard_of(communicator)};
      torch::nn::Dropout model;
      EXPECT_THAT(message_of<UsageError>([&] {
                    evaluate(*model, loader, communicator, [](const data::Batch& batch) { return batch.labels; });
                  }),
                  HasSubstr("Remainder::exact"));
    }
  });
}

TEST(CountEverySample, GivesAllRanksTheMetricsOfAllSamples) {
  on_ranks([](Communicator& communicator) {
    for (std::uint64_t size = 1; size <= 7; ++size) {
      const Pixels pixels(size);
      data::DataLoader loader{
          pixels, {.batch_size = 2, .workers = 1, .remainder = data::Remainder::exact}, shard_of(communicator)};
      ClassCounts counts(8);
      NumberPairs pairs;
      ClassCounts expected(8);
      NumberPairs expected_pairs;
      for (std::uint64_t index = 0; index < size; ++index) {
        const auto label = static_cast<std::int64_t>(index);
        expected.add(label, label / 2);
        expected_pairs.add(static_cast<double>(label), static_cast<double>(label % 3) / 7);
      }
      const auto never = [] { return false; };
      const auto for_labels = [](const data::Batch& batch, const auto& take) {
        for (std::int64_t place = 0; place < batch.size(); ++place) take(batch.labels[place].item<std::int64_t>());
      };
      ASSERT_TRUE(count_every_sample(
          loader, communicator, counts,
          [&](const data::Batch& batch, ClassCounts& to) {
            for_labels(batch, [&](std::int64_t label) { to.add(label, label / 2); });
          },
          never));
      ASSERT_TRUE(count_every_sample(
          loader, communicator, pairs,
          [&](const data::Batch& batch, NumberPairs& to) {
            for_labels(batch, [&](std::int64_t label) {
              to.add(static_cast<double>(label), static_cast<double>(label % 3) / 7);
            });
          },
          never));
      const auto again = [&] { count_every_sample(loader, communicator, counts, [](const auto&, auto&) {}, never); };
      EXPECT_THAT(message_of<UsageError>(again), HasSubstr("Use new ones"));
      EXPECT_EQ(counts.numbers(), expected.numbers());
      EXPECT_EQ(counts.matthews(), expected.matthews());
      EXPECT_EQ(pairs.samples(), size);
      EXPECT_EQ(pairs.spearman(), expected_pairs.spearman());
      EXPECT_EQ(pairs.pearson(), expected_pairs.pearson());
    }
  });
}

TEST(CountEverySample, EndsOnAllRanksWhenItMustStop) {
  on_ranks([](Communicator& communicator) {
    const Pixels pixels(static_cast<std::uint64_t>(4 * communicator.world_size()));
    data::DataLoader loader{
        pixels, {.batch_size = 1, .workers = 0, .remainder = data::Remainder::exact}, shard_of(communicator)};
    ClassCounts counts(100);
    int batches = 0;
    EXPECT_FALSE(count_every_sample(
        loader, communicator, counts, [&](const data::Batch&, ClassCounts&) { ++batches; },
        [&] { return batches == 2; }));
    EXPECT_EQ(batches, 2);
  });
}

TEST(MergeOverRanks, RefusesDifferentCountsOnAllRanks) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    ClassCounts counts(communicator.rank() == 0 ? 3 : 2);
    EXPECT_THAT(message_of<UsageError>([&] { merge_over_ranks(counts, communicator); }), HasSubstr("are added to"));
  });
}

}  // namespace
}  // namespace libtrain
