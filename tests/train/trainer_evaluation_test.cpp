#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/stack.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/checkpoint/checkpoint_folder.hpp>
#include <libtrain/observe/tracker.hpp>
#include <libtrain/train/trainer.hpp>

#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/train/trainer_runs.hpp>

namespace libtrain {
namespace {

using test::message_of;
using test::on_ranks;
using test::trainer::options_of;
using test::trainer::Parts;
using test::trainer::set_weights;
using test::trainer::TestRun;
using test::trainer::Waves;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(TrainerEvaluation, CountsEverySampleOnceAndKeepsTheBest) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto context = run.start();
    Parts parts{{}, *context};
    auto options = options_of({});
    options.epochs = 6;
    options.evaluations_without_improvement = 2;
    options.checkpoints = {.last = 1, .metric = "value", .best = CheckpointRetention::Best::highest};
    Trainer trainer{*context, parts.model, *parts.plain, options};
    const Waves seven{7};
    data::DataLoader held_out{
        seven, {.batch_size = 2, .workers = 1, .remainder = data::Remainder::exact}, context->shard()};
    trainer.evaluate_with(held_out, {"label", "one"}, [&](const data::Batch& batch) {
      EXPECT_FALSE(parts.model->is_training());
      return at::stack({batch.labels, at::ones_like(batch.labels)}, 1);
    });
    // Best in the second epoch.
    const std::vector<double> values{1, 3, 2, 3, 9, 9};
    std::size_t evaluations = 0;
    trainer.evaluate_with([&] { return std::map<std::string, double>{{"value", values.at(evaluations++)}}; });
    trainer.fit(parts.loader, [&](const data::Batch& batch) { return parts.loss(batch); });
    EXPECT_EQ(evaluations, 4U);
    EXPECT_TRUE(parts.model->is_training());
    EXPECT_EQ(trainer.state().evaluation.at("label"), (0 + 1 + 2 + 0 + 1 + 2 + 0) / 7.0);
    EXPECT_EQ(trainer.state().evaluation.at("one"), 1.0);
    EXPECT_EQ(trainer.state().epoch, 4);
    const auto steps = static_cast<std::int64_t>(parts.loader.batches_per_epoch());
    EXPECT_EQ(trainer.best_checkpoint().filename(), checkpoint_folder_name(2 * steps));
    if (communicator.rank() != 0) return;
    std::set<std::int64_t> kept;
    for (const auto& checkpoint : list_checkpoints(run.checkpoints())) kept.insert(checkpoint.step);
    EXPECT_EQ(kept, (std::set<std::int64_t>{2 * steps, 4 * steps}));
    EXPECT_EQ(context->summary().non_finite(), std::vector<std::string>{});
  });
}

// Within an epoch and at its end.
TEST(TrainerEvaluation, SavesEachBestModel) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto context = run.start();
    Parts parts{{}, *context};
    auto options = options_of({});
    options.epochs = 2;
    options.evaluate_every_steps = 2;
    options.checkpoints = {.every_epochs = 0, .last = std::nullopt, .metric = "value"};
    Trainer trainer{*context, parts.model, *parts.plain, options};
    std::set<std::int64_t> evaluated;
    trainer.evaluate_with([&] {
      evaluated.insert(trainer.state().step);
      return std::map<std::string, double>{{"value", -static_cast<double>(trainer.state().step)}};
    });
    trainer.fit(parts.loader, [&](const data::Batch& batch) { return parts.loss(batch); });
    if (communicator.rank() != 0) return;
    std::set<std::int64_t> kept;
    for (const auto& checkpoint : list_checkpoints(run.checkpoints())) kept.insert(checkpoint.step);
    EXPECT_GT(kept.size(), 2U);
    EXPECT_EQ(kept, evaluated);
  });
}

// After the last step no round compares them any more.
TEST(TrainerEvaluation, ComparesTheReplicasBefore) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    TestRun run{communicator};
    const auto context = run.start();
    Parts parts{{}, *context};
    auto options = options_of({});
    options.max_steps = 1;
    Trainer trainer{*context, parts.model, *parts.plain, options};
    trainer.evaluate_with([&] {
      ADD_FAILURE() << "the model was evaluated";
      return std::map<std::string, double>{};
    });
    trainer.after_step([&](const TrainingState&) {
      const at::NoGradGuard no_grad;
      if (communicator.rank() == 1) parts.model->parameters().front().add_(1);
    });
    EXPECT_THAT(message_of<UsageError>(
                    [&] { trainer.fit(parts.loader, [&](const data::Batch& batch) { return parts.loss(batch); }); }),
                HasSubstr("The replicas have diverged"));
  });
}

// Not after an epoch of hours.
TEST(TrainerEvaluation, NamesMistakesBeforeTheFirstStep) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto context = run.start();
    Parts parts{{}, *context};
    Trainer trainer{*context, parts.model, *parts.plain, {.checkpoints = {.metric = "f1"}, .tensor_board = false}};
    const auto measure = [](const data::Batch& batch) { return batch.labels; };
    const Waves waves{7};
    data::DataLoader padded{waves, {.batch_size = 8, .workers = 1}, context->shard()};
    if (communicator.world_size() > 1) {
      EXPECT_THAT(message_of<UsageError>([&] { trainer.evaluate_with(padded, {"label"}, measure); }),
                  HasSubstr("Remainder::exact"));
    }
    data::DataLoader exact{
        waves, {.batch_size = 8, .workers = 1, .remainder = data::Remainder::exact}, context->shard()};
    trainer.evaluate_with(exact, {"label"}, measure);
    EXPECT_THAT(message_of<UsageError>([&] {
                  trainer.fit(parts.loader, [&](const data::Batch& batch) {
                    ADD_FAILURE() << "a step was made";
                    return parts.loss(batch);
                  });
                }),
                AllOf(HasSubstr("No evaluation gives 'f1'"), HasSubstr("but label")));
  });
}

// With the weights that the program has set since the trainer was made.
TEST(TrainerEvaluation, MayBeAllThatATrainerDoes) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto context = run.start();
    Parts parts{{.average = true}, *context};
    Trainer trainer{*context, parts.model, *parts.plain, options_of(parts.recipe)};
    set_weights(*parts.model, 7);
    const auto weight = parts.model->parameters().front().detach().clone();
    const Waves seven{7};
    data::DataLoader held_out{
        seven, {.batch_size = 2, .workers = 1, .remainder = data::Remainder::exact}, context->shard()};
    trainer.evaluate_with(held_out, {"label"}, [&](const data::Batch& batch) {
      EXPECT_FALSE(parts.model->is_training());
      EXPECT_FALSE(at::GradMode::is_enabled());
      EXPECT_TRUE(at::equal(parts.model->parameters().front(), weight));
      return batch.labels;
    });
    trainer.evaluate_with([&](const std::function<bool()>& must_stop) {
      EXPECT_FALSE(must_stop());
      const Metric pictures{"count", 1};
      trainer.trackers().log_metrics("pictures", 0, {&pictures, 1});
      return std::optional{std::map<std::string, double>{{"rank", communicator.rank()}}};
    });
    const std::map<std::string, double> expected{{"label", (0 + 1 + 2 + 0 + 1 + 2 + 0) / 7.0}, {"rank", 0}};
    EXPECT_EQ(trainer.evaluate(), expected);
    EXPECT_EQ(trainer.state().evaluation, expected);
    EXPECT_TRUE(parts.model->is_training());
    EXPECT_TRUE(at::equal(parts.model->parameters().front(), weight));
    EXPECT_THAT(message_of<UsageError>([&] { trainer.evaluate(); }), HasSubstr("after its fit() or evaluate()"));
    if (communicator.rank() != 0) return;
    EXPECT_EQ(run.records("evaluation", "label"), (std::map<std::int64_t, double>{{0, expected.at("label")}}));
    EXPECT_FALSE(std::filesystem::exists(run.checkpoints()));
  });
}

TEST(TrainerEvaluation, MayNotEndWithoutValuesUnlessTheRunIsAskedToStop) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto context = run.start();
    Parts parts{{}, *context};
    Trainer trainer{*context, parts.model, *parts.plain, options_of({})};
    trainer.evaluate_with(
        [](const std::function<bool()>& /*must_stop*/) { return std::optional<std::map<std::string, double>>{}; });
    EXPECT_THAT(message_of<UsageError>(
                    [&] { trainer.fit(parts.loader, [&](const data::Batch& batch) { return parts.loss(batch); }); }),
                HasSubstr("although the run was not asked to stop"));
  });
}

TEST(TrainerEvaluation, RepeatsOneThatWasCutShortWithTheSameRandomNumbers) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() > 1) return;  // ranks that are threads share the generator
    const auto fit = [&](TestRun& run, bool stops) {
      const auto context = run.start();
      Parts parts{{}, *context};
      auto options = options_of({});
      options.epochs = 1;
      Trainer trainer{*context, parts.model, *parts.plain, options};
      trainer.evaluate_with(
          [&](const std::function<bool()>& must_stop) -> std::optional<std::map<std::string, double>> {
            const auto drawn = at::rand({}).item<double>();
            if (stops) std::raise(SIGTERM);
            for (int time = 0; time < 2; ++time)
              if (must_stop()) return std::nullopt;
            return std::map<std::string, double>{{"drawn", drawn}};
          });
      trainer.fit(parts.loader, [&](const data::Batch& batch) { return parts.loss(batch); });
      return trainer.state().evaluation;
    };
    TestRun undisturbed{communicator};
    TestRun stopped{communicator};
    at::manual_seed(1);
    const auto expected = fit(undisturbed, false);
    at::manual_seed(1);
    EXPECT_THROW(fit(stopped, true), StoppedOnRequest);
    EXPECT_EQ(fit(stopped, false), expected);
  });
}

TEST(TrainerEvaluation, WithoutTrainingNeedsEqualReplicasAndSomethingToEvaluate) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto context = run.start();
    Parts parts{{}, *context};
    EXPECT_THAT(message_of<UsageError>([&] { Trainer{*context, parts.model, *parts.plain}.evaluate(); }),
                HasSubstr("without evaluations"));
    if (communicator.world_size() == 1) return;
    Trainer trainer{*context, parts.model, *parts.plain, options_of({})};
    trainer.evaluate_with([] { return std::map<std::string, double>{}; });
    set_weights(*parts.model, communicator.rank() == 1 ? 7 : 5);
    EXPECT_THAT(message_of<UsageError>([&] { trainer.evaluate(); }), HasSubstr("The replicas have diverged"));
  });
}

}  // namespace
}  // namespace libtrain
