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

// As with another number of ranks: other steps in an epoch.
TEST(TrainerSteps, EndAtTheSameStepWithTheSameScheduleWithAnotherBatchSize) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const Waves waves{96};
    const auto fit = [&](std::uint64_t size, std::int64_t stop_after, const std::string& resume) {
      const auto context = run.start({}, resume);
      Parts parts{{}, *context};
      data::DataLoader loader{waves, {.batch_size = size, .workers = 1}, context->shard()};
      auto options = options_of({});
      options.epochs = 0;
      options.max_steps = 32;
      options.log_every_steps = 1;
      options.schedule = [](const TrainingLength& length) {
        EXPECT_EQ(length.steps, 32);
        return
            [each = length.steps_per_epoch](std::int64_t step) { return 1.0 / static_cast<double>(1 + step / each); };
      };
      Trainer trainer{*context, parts.model, *parts.plain, options};
      trainer.after_step([&](const TrainingState& state) {
        if (state.step == stop_after) throw Killed{};
      });
      trainer.fit(loader, [&](const data::Batch& batch) { return parts.loss(batch); });
      EXPECT_EQ(trainer.state().step, 32);
      EXPECT_EQ(trainer.state().epoch, 2 + 4);
    };
    const auto size = 12 / static_cast<std::uint64_t>(communicator.world_size());  // 8 steps in an epoch
    EXPECT_THROW(fit(size, 17, "auto"), Killed);  // the last checkpoint is that of step 16
    communicator.barrier();
    fit(2 * size, -1, run.checkpoints().string());
    communicator.barrier();
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
