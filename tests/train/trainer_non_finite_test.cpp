#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/optim/sgd.h>

#include <libtrain/base/error.hpp>
#include <libtrain/checkpoint/checkpoint_folder.hpp>
#include <libtrain/train/trainer.hpp>

#include <tests/support/device.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/train/trainer_runs.hpp>

namespace libtrain {
namespace {

using test::message_of;
using test::on_ranks;
using test::trainer::options_of;
using test::trainer::Parts;
using test::trainer::TestRun;
using ::testing::HasSubstr;

TEST(TrainerNonFinite, LeavesOutTheValuesOfSkippedSteps) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto context = run.start();
    Parts parts{{}, *context};
    auto options = options_of({});
    options.synchronizer.non_finite = NonFinite::skipped;
    Trainer trainer{*context, parts.model, *parts.plain, options};
    trainer.fit(parts.loader, [&](const data::Batch& batch) {
      const bool is_bad = trainer.state().step == 1 && communicator.rank() == 0;
      return parts.loss(batch) * (is_bad ? std::numeric_limits<double>::quiet_NaN() : 1.0);
    });
    communicator.barrier();
    if (communicator.rank() != 0) return;
    EXPECT_EQ(context->summary().non_finite(), std::vector<std::string>{});
    for (const auto& [step, loss] : run.records("step", "loss")) EXPECT_TRUE(std::isfinite(loss)) << step;
  });
}

// Such a run has learnt nothing, although its weights are finite.
TEST(TrainerNonFinite, HasNoLossIfAllStepsAreSkipped) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto context = run.start();
    Parts parts{{}, *context};
    auto options = options_of({});
    options.synchronizer.non_finite = NonFinite::skipped;
    Trainer trainer{*context, parts.model, *parts.plain, options};
    trainer.fit(parts.loader,
                [&](const data::Batch& batch) { return parts.loss(batch) * std::numeric_limits<double>::quiet_NaN(); });
    EXPECT_TRUE(std::isnan(trainer.state().metrics.at("loss")));
    if (communicator.rank() == 0) {
      EXPECT_EQ(context->summary().non_finite(), std::vector<std::string>{"loss"});
    }
  });
}

// In the middle of an epoch, in which the last record may have no loss.
TEST(TrainerNonFinite, HasTheLossOfTheEpochIfTheLastStepsAreSkipped) {
  on_ranks([](Communicator& communicator) {
    for (const std::int64_t first_skipped : {3, 0}) {
      TestRun run{communicator};
      const auto context = run.start();
      Parts parts{{}, *context};
      auto options = options_of({});
      options.max_steps = 4;
      options.synchronizer.non_finite = NonFinite::skipped;
      Trainer trainer{*context, parts.model, *parts.plain, options};
      trainer.fit(parts.loader, [&](const data::Batch& batch) {
        const bool is_bad = trainer.state().step >= first_skipped;
        return parts.loss(batch) * (is_bad ? std::numeric_limits<double>::quiet_NaN() : 1.0);
      });
      EXPECT_EQ(std::isfinite(trainer.state().metrics.at("loss")), first_skipped > 0);
    }
  });
}

// Such statistics are not in the checkpoint, which has rank 0's.
void expect_success_with_rank_0s_statistics(Communicator& communicator, bool has_average) {
  TestRun run{communicator};
  const auto context = run.start();
  Parts parts{{}, *context};
  parts.model->push_back(torch::nn::BatchNorm1d(3));
  parts.model->to(test::device());
  parts.plain = std::make_unique<torch::optim::SGD>(parts.model->parameters(), torch::optim::SGDOptions(0.1));
  auto options = options_of({});
  options.epochs = 1;
  options.checkpoints.every_steps = 1;
  if (has_average) options.moving_average = {.decay = 0.5};
  Trainer trainer{*context, parts.model, *parts.plain, options};
  if (has_average) trainer.evaluate_with([] { return std::map<std::string, double>{{"accuracy", 1.0}}; });
  trainer.after_step([&](const TrainingState&) {
    const at::NoGradGuard no_grad;
    if (communicator.rank() > 0) parts.model->named_buffers()["3.running_mean"].fill_(std::nan(""));
  });
  trainer.fit(parts.loader, [&](const data::Batch& batch) { return parts.loss(batch); });
  EXPECT_GT(trainer.state().step, 1);
  EXPECT_TRUE(parts.model->named_buffers()["3.running_mean"].isfinite().all().item<bool>());
  if (has_average) trainer.part().moving_average()->copy_to(*parts.model);
  EXPECT_TRUE(parts.model->named_buffers()["3.running_mean"].isfinite().all().item<bool>());
}

TEST(TrainerNonFinite, SavesWhatIsFiniteOnRank0) {
  on_ranks([](Communicator& communicator) {
    expect_success_with_rank_0s_statistics(communicator, false);
    expect_success_with_rank_0s_statistics(communicator, true);
  });
}

// Two rounds in a step, and none of the second part in most steps.
TEST(TrainerNonFinite, LeavesOutTheValuesOfSkippedRoundsOfTheStep) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto context = run.start();
    Parts parts{{}, *context};
    Parts others{{}, *context};
    auto options = options_of({});
    options.log_every_steps = 1;
    options.synchronizer.non_finite = NonFinite::skipped;
    Trainer trainer{*context, options};
    auto& often = trainer.add("often", parts.model, *parts.plain);
    auto& rarely = trainer.add("rarely", others.model, *others.plain);
    const auto nan = std::numeric_limits<double>::quiet_NaN();
    trainer.fit(parts.loader, [&](const data::Batch& batch) {
      const auto step = trainer.state().step;
      const auto loss = parts.loss(batch);
      const auto first = loss * (step == 2 ? nan : 1.0);
      often.update(first);
      often.update(parts.loss(batch));
      if (step == 0) rarely.update(others.loss(batch) * nan);
      return StepResult::updated({{"first", first}});
    });
    communicator.barrier();
    if (communicator.rank() != 0) return;
    const auto values = run.records("step", "first");
    EXPECT_FALSE(values.contains(1));  // the step of the part that is skipped
    EXPECT_TRUE(values.contains(2));
    EXPECT_FALSE(values.contains(3));
    EXPECT_TRUE(values.contains(4));
    for (const auto& [step, value] : values) EXPECT_TRUE(std::isfinite(value)) << step;
  });
}

TEST(TrainerNonFinite, LeavesOutTheLossesOfStepsThatTheScalerSkips) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto context = run.start();
    Parts parts{{.precision = Precision::float16}, *context};
    Trainer trainer{*context, parts.model, parts.optimizer(), options_of(parts.recipe)};
    trainer.fit(parts.loader, [&](const data::Batch& batch) {
      return parts.loss(batch) * (trainer.state().step == 1 ? std::numeric_limits<double>::infinity() : 1.0);
    });
    EXPECT_TRUE(std::isfinite(trainer.state().metrics.at("loss")));
    EXPECT_EQ(context->summary().non_finite(), std::vector<std::string>{});
    communicator.barrier();
    if (communicator.rank() != 0) return;
    EXPECT_TRUE(std::isfinite(run.records("epoch", "loss").begin()->second));
  });
}

TEST(TrainerNonFinite, EndsARunWhoseWeightsAreNotFiniteBeforeTheyReplaceItsCheckpoints) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto context = run.start();
    Parts parts{{}, *context};
    auto options = options_of({});
    options.epochs = 6;
    std::optional<Trainer> trainer{std::in_place, *context, parts.model, *parts.plain, options};
    const auto steps = static_cast<std::int64_t>(parts.loader.batches_per_epoch());
    const auto fit = [&] {
      trainer->fit(parts.loader, [&](const data::Batch& batch) {
        const bool diverges = trainer->state().step > steps;
        return parts.loss(batch) * (diverges ? std::numeric_limits<double>::quiet_NaN() : 1.0);
      });
    };
    EXPECT_THAT(message_of<UsageError>(fit), HasSubstr("not finite: the training has diverged"));
    EXPECT_EQ(trainer->state().step, 2 * steps);
    trainer.reset();  // the first checkpoint may still be being written
    communicator.barrier();
    if (communicator.rank() != 0) return;
    ASSERT_FALSE(list_checkpoints(run.checkpoints()).empty());
    EXPECT_EQ(list_checkpoints(run.checkpoints()).back().folder.filename(), checkpoint_folder_name(steps));
  });
}

}  // namespace
}  // namespace libtrain
