// A Trainer that is interrupted, stopped and started again.

#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/stop_request.hpp>
#include <libtrain/checkpoint/checkpoint_folder.hpp>
#include <libtrain/train/trainer.hpp>

#include <tests/support/device.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/train/trainer_runs.hpp>

namespace libtrain {
namespace {

using test::device;
using test::message_of;
using test::on_ranks;
using test::trainer::options_of;
using test::trainer::Parts;
using test::trainer::Recipe;
using test::trainer::recipes;
using test::trainer::TestRun;
using test::trainer::Waves;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

struct Interrupted {};

// Every number of the run's records, which must not depend on interruptions.
std::vector<std::map<std::int64_t, double>> curves(const TestRun& run) {
  return {run.records("step", "loss"), run.records("step", "learning_rate"), run.records("epoch", "loss"),
          run.records("evaluation", "accuracy")};
}

// Trains until the end, or until the end of step `stop_after`, which then throws.
at::Tensor train(const Recipe& recipe, TestRun& run, std::int64_t every_steps, std::int64_t stop_after = -1) {
  const auto context = run.start();
  Parts parts{recipe, *context};
  auto options = options_of(recipe);
  options.checkpoints.every_steps = every_steps;
  Trainer trainer{*context, options};
  auto& part = trainer.add("model", parts.model, parts.optimizer());
  const Waves held_out_waves{11};
  data::DataLoader held_out{
      held_out_waves, {.batch_size = 3, .workers = 1, .remainder = data::Remainder::exact}, context->shard()};
  trainer.evaluate_with(held_out, {"accuracy"}, [&](const data::Batch& batch) {
    return parts.model->forward(batch.images.to(device()).flatten(1)).argmax(1).eq(batch.labels.to(device()));
  });
  trainer.after_step([&](const TrainingState& state) {
    if (state.step == stop_after) throw Interrupted{};
  });
  trainer.fit(parts.loader, [&](const data::Batch& batch) { return parts.loss(batch); });
  return parts.everything(part.moving_average());
}

TEST(TrainerResume, ContinuesBitForBitAfterInterruptions) {
  on_ranks([](Communicator& communicator) {
    for (const auto& recipe : recipes()) {
      TestRun undisturbed{communicator};
      const auto expected = train(recipe, undisturbed, 0);
      TestRun run{communicator};
      // In the first epoch, soon after a checkpoint, just after the restart, and in the last epoch.
      for (const std::int64_t step : {4, 5, 7}) {
        EXPECT_THROW(train(recipe, run, 2, step), Interrupted) << recipe.name;
        communicator.barrier();
      }
      const auto resumed = train(recipe, run, 2);
      EXPECT_TRUE(at::equal(resumed, expected)) << recipe.name;
      if (communicator.rank() == 0) {
        EXPECT_EQ(curves(run), curves(undisturbed)) << recipe.name;
      }
    }
  });
}

// Without a schedule: a rule of the program's own. A second run may begin with other rates, as with other ranks.
TEST(TrainerResume, RestoresTheRatesThatTheProgramHasSet) {
  on_ranks([](Communicator& communicator) {
    for (const bool is_sharded : {false, true}) {
      for (const double factor : {1.0, 2.0}) {
        TestRun run{communicator};
        const auto fit = [&](double rate, std::int64_t stop_after, const std::string& resume) {
          const auto context = run.start({}, resume);
          Parts parts{{.sharded = is_sharded}, *context};
          const auto multiply = [&](double by) {
            if (is_sharded) {
              auto rates = parts.sharded->learning_rates();
              rates.of_parameters.front() *= by;  // that which is recorded
              rates.factor *= by;
              parts.sharded->set_learning_rates(rates);
            } else {
              auto& group = parts.plain->param_groups().front().options();
              group.set_lr(group.get_lr() * by * by);
            }
          };
          if (is_sharded) {
            parts.sharded->set_learning_rate(rate);
          } else {
            parts.plain->param_groups().front().options().set_lr(rate);
          }
          auto options = options_of({});
          options.schedule = {};
          options.log_every_steps = 1;
          Trainer trainer{*context, options};
          trainer.add("model", parts.model, parts.optimizer());
          trainer.after_epoch([&](const TrainingState&) { multiply(0.5); });
          trainer.after_step([&](const TrainingState& state) {
            if (state.step != stop_after) return;
            // The checkpoint is written in the background, by all ranks if the optimizer is sharded.
            while (communicator.rank() == 0 && list_manifests(run.checkpoints()).empty())
              std::this_thread::sleep_for(std::chrono::milliseconds(10));
            communicator.barrier();
            throw Interrupted{};
          });
          trainer.fit(parts.loader, [&](const data::Batch& batch) { return parts.loss(batch); });
          return static_cast<std::int64_t>(parts.loader.batches_per_epoch());
        };
        EXPECT_THROW(fit(0.1, 9, "auto"), Interrupted);  // in the second epoch
        communicator.barrier();
        const auto steps = fit(0.1 * factor, -1, factor == 1 ? "auto" : run.checkpoints().string());
        ASSERT_LT(steps, 9);
        communicator.barrier();
        if (communicator.rank() != 0) continue;
        const auto rates = run.records("step", "learning_rate");
        EXPECT_DOUBLE_EQ(rates.at(steps), 0.1);
        EXPECT_DOUBLE_EQ(rates.at(2 * steps), 0.025 * factor);
        EXPECT_DOUBLE_EQ(rates.at(3 * steps), 0.00625 * factor);
      }
    }
  });
}

// ---- Stopping

// Runs fit() with a signal to the process in one of its steps or evaluations; returns the message of the stop.
std::string stop(TestRun& run, std::int64_t in_step, std::int64_t in_evaluation) {
  const auto context = run.start();
  Parts parts{{}, *context};
  Trainer trainer{*context, parts.model, *parts.plain, options_of({})};
  const Waves held_out_waves{40};
  data::DataLoader held_out{
      held_out_waves, {.batch_size = 1, .workers = 1, .remainder = data::Remainder::exact}, context->shard()};
  std::int64_t batches = 0;
  std::int64_t evaluated = 0;
  trainer.evaluate_with(held_out, {"one"}, [&](const data::Batch& batch) {
    if (++evaluated == in_evaluation && context->rank() == 0) std::raise(SIGUSR1);
    return at::ones_like(batch.labels);
  });
  return message_of<StoppedOnRequest>([&] {
    trainer.fit(parts.loader, [&](const data::Batch& batch) {
      if (++batches == in_step && context->rank() == 0) std::raise(SIGTERM);
      return parts.loss(batch);
    });
  });
}

TEST(TrainerResume, StopsAfterTheSameStepOnAllRanksWithACheckpoint) {
  on_ranks([](Communicator& communicator) {
    TestRun undisturbed{communicator};
    const auto expected = train({}, undisturbed, 0);
    TestRun run{communicator};
    const auto message = stop(run, 3, -1);
    EXPECT_THAT(message, HasSubstr("SIGTERM on rank 0"));
    EXPECT_THAT(message, AnyOf(HasSubstr("at step 3,"), HasSubstr("at step 4,")));  // in the round of which it was seen
    for (const auto& other : communicator.all_gather_bytes(message)) EXPECT_EQ(other, message);
    communicator.barrier();
    EXPECT_TRUE(at::equal(train({}, run, 0), expected));
    if (communicator.rank() == 0) {
      EXPECT_EQ(curves(run), curves(undisturbed));
    }
  });
}

TEST(TrainerResume, CutsAnEvaluationShortAndRepeatsIt) {
  on_ranks([](Communicator& communicator) {
    TestRun undisturbed{communicator};
    const auto expected = train({}, undisturbed, 0);
    TestRun run{communicator};
    EXPECT_THAT(stop(run, -1, 2), HasSubstr("SIGUSR1"));
    if (communicator.rank() == 0) {
      EXPECT_TRUE(run.records("evaluation", "one").empty());
    }
    communicator.barrier();
    EXPECT_TRUE(at::equal(train({}, run, 0), expected));
    if (communicator.rank() == 0) {
      EXPECT_EQ(curves(run), curves(undisturbed));
    }
  });
}

// The last evaluation of a run is cut short, even if the signal comes in its last step.
TEST(TrainerResume, RepeatsTheLastEvaluationAndHasFinishedThen) {
  on_ranks([](Communicator& communicator) {
    for (const std::int64_t max_steps : {4, 0}) {
      TestRun run{communicator};
      std::int64_t evaluated = 0;
      const auto fit = [&](bool raises) {
        const auto context = run.start();
        Parts parts{{}, *context};
        auto options = options_of({});
        options.epochs = 1;
        options.max_steps = max_steps;
        options.checkpoints.metric = "label";
        Trainer trainer{*context, parts.model, *parts.plain, options};
        const Waves held_out_waves{40};
        data::DataLoader held_out{
            held_out_waves, {.batch_size = 1, .workers = 1, .remainder = data::Remainder::exact}, context->shard()};
        trainer.evaluate_with(held_out, {"label"}, [&](const data::Batch& batch) {
          ++evaluated;
          return batch.labels;
        });
        const auto last = max_steps > 0 ? max_steps : static_cast<std::int64_t>(parts.loader.batches_per_epoch());
        trainer.after_step([&](const TrainingState& state) {
          if (raises && state.step == last && communicator.rank() == 0) std::raise(SIGTERM);
        });
        trainer.fit(parts.loader, [&](const data::Batch& batch) { return parts.loss(batch); });
        return trainer.best_checkpoint();
      };
      EXPECT_THROW(fit(true), StoppedOnRequest);
      communicator.barrier();
      evaluated = 0;
      const auto best = fit(false);
      EXPECT_GT(evaluated, 0);
      EXPECT_LE(evaluated, 40 / communicator.world_size() + 1);  // once
      communicator.barrier();
      if (communicator.rank() == 0) {
        EXPECT_EQ(run.records("evaluation", "label").size(), 1U);
        EXPECT_TRUE(std::filesystem::exists(best / "manifest.json"));
      }
    }
  });
}

// One by a function of the program, which asks.
TEST(TrainerResume, CutsAnEvaluationOfTheProgramShort) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    int asked = 0;
    int evaluated = 0;
    const auto fit = [&](bool raises) {
      const auto context = run.start();
      Parts parts{{}, *context};
      auto options = options_of({});
      options.epochs = 1;
      Trainer trainer{*context, parts.model, *parts.plain, options};
      trainer.evaluate_with(
          [&](const std::function<bool()>& must_stop) -> std::optional<std::map<std::string, double>> {
            for (int batch = 0; batch < 500; ++batch) {
              if (raises && batch == 3 && communicator.rank() == 0) std::raise(SIGTERM);
              if (must_stop()) return std::nullopt;
              ++asked;
            }
            ++evaluated;
            return std::map<std::string, double>{{"rank", communicator.rank()}};
          });
      trainer.fit(parts.loader, [&](const data::Batch& batch) { return parts.loss(batch); });
      return trainer.state().evaluation;
    };
    EXPECT_THROW(fit(true), StoppedOnRequest);
    EXPECT_LT(asked, 500);
    EXPECT_EQ(evaluated, 0);
    communicator.barrier();
    EXPECT_EQ(fit(false), (std::map<std::string, double>{{"rank", 0}}));  // rank 0's count
    EXPECT_EQ(evaluated, 1);
    communicator.barrier();
    if (communicator.rank() == 0) {
      EXPECT_EQ(run.records("evaluation", "rank").size(), 1U);
    }
  });
}

// That after a callback which has ended the training.
TEST(TrainerResume, RepeatsTheEvaluationOfATrainingThatTheProgramHasEnded) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    std::int64_t batches = 0;
    std::int64_t evaluations = 0;
    const auto fit = [&](bool raises) {
      const auto context = run.start();
      Parts parts{{}, *context};
      auto options = options_of({});
      options.evaluate_every_epochs = 0;
      Trainer trainer{*context, parts.model, *parts.plain, options};
      trainer.evaluate_with(
          [&](const std::function<bool()>& must_stop) -> std::optional<std::map<std::string, double>> {
            if (raises && communicator.rank() == 0) std::raise(SIGTERM);
            for (int time = 0; raises || time < 3; ++time)
              if (must_stop()) return std::nullopt;
            ++evaluations;
            return std::map<std::string, double>{{"one", 1}};
          });
      trainer.after_epoch([&](const TrainingState&) { trainer.end_training(); });
      trainer.fit(parts.loader, [&](const data::Batch& batch) {
        ++batches;
        return parts.loss(batch);
      });
    };
    EXPECT_THROW(fit(true), StoppedOnRequest);
    communicator.barrier();
    const auto before = batches;
    fit(false);
    EXPECT_EQ(evaluations, 1);
    EXPECT_EQ(batches, before);
    if (communicator.rank() == 0) {
      EXPECT_EQ(run.records("evaluation", "epoch"), (std::map<std::int64_t, double>{{before, 0}}));
    }
  });
}

// A checkpoint that was written when its evaluation was cut short is not known as the best until it is repeated.
TEST(TrainerResume, KeepsTheBestCheckpointWhoseEvaluationWasRepeated) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    bool raised = false;
    const auto fit = [&] {
      const auto context = run.start();
      Parts parts{{}, *context};
      auto options = options_of({});
      options.checkpoints = {.last = 1, .metric = "cost"};
      Trainer trainer{*context, parts.model, *parts.plain, options};
      const Waves held_out_waves{40};
      data::DataLoader held_out{
          held_out_waves, {.batch_size = 1, .workers = 1, .remainder = data::Remainder::exact}, context->shard()};
      trainer.evaluate_with(held_out, {"cost"}, [&](const data::Batch& batch) {
        if (communicator.rank() == 0 && !std::exchange(raised, true)) std::raise(SIGUSR1);
        return at::full_like(batch.labels, trainer.state().step);
      });
      trainer.fit(parts.loader, [&](const data::Batch& batch) { return parts.loss(batch); });
      return trainer.best_checkpoint();
    };
    EXPECT_THROW(fit(), StoppedOnRequest);
    communicator.barrier();
    const auto best = fit();
    communicator.barrier();
    if (communicator.rank() != 0) return;
    EXPECT_TRUE(std::filesystem::exists(best / "manifest.json"));
  });
}

// The checkpoint of the step in which a run stops may have been written for its value, or have failed.
TEST(TrainerResume, StopsAtTheBestCheckpoint) {
  on_ranks([](Communicator& communicator) {
    for (const bool fails : {false, true}) {
      TestRun run{communicator};
      if (fails && communicator.rank() == 0) {
        std::filesystem::create_directories(run.checkpoints());
        std::ofstream(run.checkpoints() / checkpoint_folder_name(2)) << "in the way";
      }
      communicator.barrier();
      const auto fit = [&] {
        const auto context = run.start();
        Parts parts{{}, *context};
        auto options = options_of({});
        options.evaluate_every_steps = 1;
        options.checkpoints = {.metric = "cost"};
        Trainer trainer{*context, parts.model, *parts.plain, options};
        trainer.evaluate_with(
            [&] { return std::map<std::string, double>{{"cost", -static_cast<double>(trainer.state().step)}}; });
        std::int64_t batches = 0;
        trainer.fit(parts.loader, [&](const data::Batch& batch) {
          if (++batches == 2 && communicator.rank() == 0) std::raise(SIGTERM);
          return parts.loss(batch);
        });
      };
      if (fails) {
        EXPECT_THAT(message_of<EnvironmentError>(fit), HasSubstr("step-00000002"));
      } else {
        EXPECT_THROW(fit(), StoppedOnRequest);
      }
      communicator.barrier();
      EXPECT_FALSE(std::filesystem::exists(run.checkpoints() / "best.json"));
    }
  });
}

// The program has been changed meanwhile.
TEST(TrainerResume, ForgetsAnEvaluationThatTheProgramHasNoMore) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    bool raised = false;
    const auto fit = [&](bool evaluates) {
      const auto context = run.start();
      Parts parts{{}, *context};
      auto options = options_of({});
      options.max_steps = 2;
      Trainer trainer{*context, parts.model, *parts.plain, options};
      const Waves held_out_waves{40};
      data::DataLoader held_out{
          held_out_waves, {.batch_size = 1, .workers = 1, .remainder = data::Remainder::exact}, context->shard()};
      if (evaluates) {
        trainer.evaluate_with(held_out, {"one"}, [&](const data::Batch& batch) {
          if (communicator.rank() == 0 && !std::exchange(raised, true)) std::raise(SIGUSR1);
          return at::ones_like(batch.labels);
        });
      }
      trainer.fit(parts.loader, [&](const data::Batch& batch) { return parts.loss(batch); });
      return trainer.state().step;
    };
    EXPECT_THROW(fit(true), StoppedOnRequest);
    communicator.barrier();
    EXPECT_EQ(fit(false), 2);
  });
}

// ---- What is continued, and what is not

std::int64_t steps_of_run(TestRun& run, std::int64_t epochs, std::map<std::string, std::string> options,
                          std::string resume) {
  const auto context = run.start(std::move(options), std::move(resume));
  Parts parts{{}, *context};
  Trainer trainer{*context, parts.model, *parts.plain, {.epochs = epochs, .tensor_board = false}};
  std::int64_t batches = 0;
  trainer.fit(parts.loader, [&](const data::Batch& batch) {
    ++batches;
    return parts.loss(batch);
  });
  return batches;
}

TEST(TrainerResume, DoesNotTrainAFinishedRunAgain) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto steps = steps_of_run(run, 2, {{"width", "8"}}, "auto");
    EXPECT_GT(steps, 0);
    EXPECT_EQ(steps_of_run(run, 2, {{"width", "8"}}, "auto"), 0);
  });
}

TEST(TrainerResume, RefusesToContinueWithAnotherConfiguration) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto steps = steps_of_run(run, 2, {{"width", "8"}}, "auto");
    EXPECT_THAT(message_of<UsageError>([&] { steps_of_run(run, 2, {{"width", "9"}}, "auto"); }),
                AllOf(HasSubstr("--width is 9 and was 8"), HasSubstr("--resume none")));
    EXPECT_THAT(message_of<UsageError>([&] { steps_of_run(run, 3, {{"width", "8"}}, "auto"); }),
                HasSubstr("epochs is 3 and was 2"));
    communicator.barrier();
    EXPECT_EQ(steps_of_run(run, 3, {{"width", "8"}}, run.checkpoints().string()), steps / 2);
  });
}

TEST(TrainerResume, StartsAnewAndKeepsEarlierCheckpoints) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto steps = steps_of_run(run, 2, {}, "auto");
    communicator.barrier();
    EXPECT_EQ(steps_of_run(run, 2, {}, "none"), steps);
    communicator.barrier();
    const auto first = run.checkpoints() / checkpoint_folder_name(steps / 2);
    for (int attempt = 0; attempt < 2; ++attempt) {  // the same command begins at the same place
      EXPECT_EQ(steps_of_run(run, 2, {}, first.string() + '/'), steps / 2);
      communicator.barrier();
    }
    if (communicator.rank() != 0) return;
    EXPECT_EQ(list_checkpoints(run.checkpoints()).size(), 1U);
    EXPECT_EQ(list_checkpoints(run.checkpoints().string() + ".1").size(), 2U);
    EXPECT_EQ(list_checkpoints(run.checkpoints().string() + ".2").size(), 2U);
    EXPECT_EQ(list_checkpoints(run.checkpoints().string() + ".3").size(), 1U);
  });
}

// Trains by PATH or "auto" with an evaluation that gives `factor` times the step as `metric`.
std::filesystem::path best_of(TestRun& run, std::int64_t epochs, const std::string& resume,
                              const std::string& metric = "cost", double factor = 1) {
  const auto context = run.start({}, resume);
  Parts parts{{}, *context};
  auto options = options_of({});
  options.epochs = epochs;
  options.checkpoints = {.metric = metric};
  Trainer trainer{*context, parts.model, *parts.plain, options};
  trainer.evaluate_with(
      [&] { return std::map<std::string, double>{{metric, factor * static_cast<double>(trainer.state().step)}}; });
  trainer.fit(parts.loader, [&](const data::Batch& batch) { return parts.loss(batch); });
  return trainer.best_checkpoint();
}

TEST(TrainerResume, HasNoBestCheckpointInAnotherFolder) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    TestRun other{communicator};
    const auto first = best_of(run, 1, "auto");
    EXPECT_EQ(first.parent_path(), run.checkpoints());
    communicator.barrier();
    const auto second = best_of(other, 2, first.string());
    EXPECT_EQ(second.parent_path(), other.checkpoints());
    EXPECT_GT(second.filename(), first.filename());
    EXPECT_TRUE(std::filesystem::exists(second / "manifest.json"));
  });
}

TEST(TrainerResume, BeginsAnewWithAnotherMetric) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto first = best_of(run, 1, "auto");
    communicator.barrier();
    const auto best = best_of(run, 6, run.checkpoints().string(), "large", 10);
    EXPECT_GT(best, first);
    EXPECT_TRUE(std::filesystem::exists(best / "manifest.json"));
  });
}

// The best is then the one that the retention keeps, however long the run continues.
TEST(TrainerResume, DoesNotNameABestCheckpointThatWasLost) {
  on_ranks([](Communicator& communicator) {
    for (const std::int64_t epochs : {2, 7}) {
      TestRun run{communicator};
      const auto first = best_of(run, 2, "auto");
      communicator.barrier();
      std::filesystem::path second;
      if (communicator.rank() == 0) {
        second = list_checkpoints(run.checkpoints()).back().folder;
        std::filesystem::remove_all(first);
      }
      communicator.barrier();
      const auto best = best_of(run, epochs, epochs == 2 ? "auto" : run.checkpoints().string());
      communicator.barrier();
      if (communicator.rank() != 0) continue;
      EXPECT_NE(second, first);
      EXPECT_EQ(best, second);
      EXPECT_TRUE(std::filesystem::exists(best / "manifest.json"));
    }
  });
}

TEST(TrainerResume, DoesNotStartAnewWhereAllCheckpointsAreDamaged) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto steps = steps_of_run(run, 2, {}, "auto");
    communicator.barrier();
    if (communicator.rank() == 0) {
      for (const auto& checkpoint : list_checkpoints(run.checkpoints()))
        std::filesystem::resize_file(checkpoint.folder / "model.safetensors", 100);
    }
    communicator.barrier();
    EXPECT_THAT(message_of<EnvironmentError>([&] { steps_of_run(run, 2, {}, "auto"); }),
                HasSubstr("None of the checkpoints"));
    communicator.barrier();
    EXPECT_EQ(steps_of_run(run, 2, {}, "none"), steps);
  });
}

}  // namespace
}  // namespace libtrain
