// Trainings that end by steps instead of epochs, and what is recorded where they stop.

#include <cstdint>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/stop_request.hpp>
#include <libtrain/train/trainer.hpp>

#include <tests/support/on_ranks.hpp>
#include <tests/train/trainer_runs.hpp>

namespace libtrain {
namespace {

using test::on_ranks;
using test::trainer::options_of;
using test::trainer::Parts;
using test::trainer::TestRun;
using test::trainer::Waves;
using ::testing::HasSubstr;
using ::testing::Not;

struct Killed {};

// Trains on 96 samples with a record of each step, and stops in step `stop_after`.
TrainingState fit_waves(TestRun& run, std::uint64_t batch_size, TrainerOptions options,
                        const std::string& resume = "auto", std::int64_t stop_after = -1) {
  const auto context = run.start({}, resume);
  const Waves waves{96};
  Parts parts{{}, *context};
  data::DataLoader loader{waves, {.batch_size = batch_size, .workers = 1}, context->shard()};
  options.log_every_steps = 1;
  Trainer trainer{*context, parts.model, *parts.plain, options};
  trainer.after_step([&](const TrainingState& state) {
    if (state.step == stop_after) throw Killed{};
  });
  trainer.fit(loader, [&](const data::Batch& batch) { return parts.loss(batch); });
  return trainer.state();
}

// Stops after 2 epochs of 8 steps, and continues with epochs of 4 steps, as larger batches give.
TrainingState fit_with_two_batch_sizes(TestRun& run, Communicator& communicator, const TrainerOptions& options) {
  const auto size = 12 / static_cast<std::uint64_t>(communicator.world_size());
  EXPECT_THROW(fit_waves(run, size, options, "auto", 17), Killed);  // the last checkpoint is that of step 16
  communicator.barrier();
  auto state = fit_waves(run, 2 * size, options, run.checkpoints().string());
  communicator.barrier();
  return state;
}

TEST(TrainerSteps, FollowTheScheduleAtTheSamePlaceInTheDataWithAnotherBatchSize) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    auto options = options_of({});
    options.epochs = 4;
    options.schedule = [](const TrainingLength& length) {
      return [length](std::int64_t step) { return static_cast<double>(step) / static_cast<double>(length.steps); };
    };
    fit_with_two_batch_sizes(run, communicator, options);
    if (communicator.rank() != 0) return;
    const auto rates = run.records("step", "learning_rate");
    EXPECT_DOUBLE_EQ(rates.at(16), 0.1 * 15 / 32);
    EXPECT_DOUBLE_EQ(rates.at(17), 0.1 * 8 / 16);
    EXPECT_DOUBLE_EQ(rates.at(24), 0.1 * 15 / 16);
    EXPECT_EQ(rates.size(), 24U);
  });
}

TEST(TrainerSteps, EndAtTheSameStepWithTheSameScheduleWithAnotherBatchSize) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    auto options = options_of({});
    options.epochs = 0;
    options.max_steps = 32;
    options.schedule = [](const TrainingLength& length) {
      EXPECT_EQ(length.steps, 32);
      return [each = length.steps_per_epoch](std::int64_t step) { return 1.0 / static_cast<double>(1 + step / each); };
    };
    const auto state = fit_with_two_batch_sizes(run, communicator, options);
    EXPECT_EQ(state.step, 32);
    EXPECT_EQ(state.epoch, 2 + 4);
    if (communicator.rank() != 0) return;
    const auto rates = run.records("step", "learning_rate");
    ASSERT_EQ(rates.size(), 32U);
    for (const auto& [step, rate] : rates)
      EXPECT_DOUBLE_EQ(rate, 0.1 / static_cast<double>(1 + (step - 1) / 8)) << step;
  });
}

TEST(TrainerSteps, RecordTheEndOfAnEpochBeforeTheyStop) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    std::int64_t last = 0;
    const auto fit = [&](bool stops) {
      const auto context = run.start();
      Parts parts{{}, *context};
      last = static_cast<std::int64_t>(parts.loader.batches_per_epoch());
      auto options = options_of({});
      options.epochs = 2;
      options.log_every_steps = 1000;
      options.max_gradient_norm = 1000;
      options.schedule = [](const TrainingLength&) {
        return [](std::int64_t step) { return 1.0 / static_cast<double>(1 + step); };
      };
      Trainer trainer{*context, parts.model, *parts.plain, options};
      trainer.fit(parts.loader, [&](const data::Batch& batch) {
        if (stops && trainer.state().step == last - 1) trainer.part().synchronizer().request_stop();
        return parts.loss(batch);
      });
    };
    EXPECT_THROW(fit(true), StoppedOnRequest);
    communicator.barrier();
    fit(false);
    communicator.barrier();
    if (communicator.rank() != 0) return;
    EXPECT_DOUBLE_EQ(run.records("step", "learning_rate").at(last), 0.1 / static_cast<double>(last));
    EXPECT_GT(run.records("step", "gradient_norm").at(last), 0);
  });
}

TEST(TrainerSteps, HaveSummariesOfBothValuesOfOneName) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto context = run.start();
    Parts parts{{}, *context};
    Trainer trainer{*context, parts.model, *parts.plain, options_of({})};
    trainer.evaluate_with([] { return std::map<std::string, double>{{"loss", 1e6}}; });
    trainer.fit(parts.loader, [&](const data::Batch& batch) { return parts.loss(batch); });
    EXPECT_LT(trainer.state().metrics.at("loss"), 1e6);
    if (communicator.rank() != 0) return;
    const auto summary = context->summary().line(0);
    EXPECT_THAT(summary, HasSubstr("\"evaluation/loss\":1000000"));
    EXPECT_THAT(summary, Not(HasSubstr("\"loss\":1000000")));
  });
}

}  // namespace
}  // namespace libtrain
