#include <libtrain/train/trainer.hpp>

#include <csignal>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <libtrain/base/error.hpp>
#include <libtrain/checkpoint/checkpoint_folder.hpp>
#include <libtrain/optim/gradient_clipping.hpp>
#include <libtrain/optim/learning_rate.hpp>
#include <libtrain/optim/optimizer_state.hpp>

#include <tests/support/device.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/train/trainer_runs.hpp>

namespace libtrain {
namespace {

using test::batch_size;
using test::device;
using test::kSamples;
using test::message_of;
using test::on_ranks;
using test::small_model;
using test::TestRun;
using test::Waves;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kEpochs = 3;

// One way to train.
struct Recipe {
  std::string name;
  bool adamw = false;
  bool sharded = false;
  std::int64_t accumulate = 1;
  data::Remainder remainder = data::Remainder::drop;
  std::optional<double> max_norm = {};
  bool average = false;
  Precision precision = Precision::float32;
  double scale = 64;  // the first one
};

std::vector<Recipe> recipes() {
  return {{.name = "sgd"},
          {.name = "adamw, clipped", .adamw = true, .max_norm = 0.1},
          {.name = "accumulated", .accumulate = 3, .remainder = data::Remainder::pad},
          {.name = "uneven", .accumulate = 2, .remainder = data::Remainder::exact},
          {.name = "average", .average = true},
          {.name = "bfloat16", .adamw = true, .precision = Precision::bfloat16},
          {.name = "float16", .max_norm = 0.5, .precision = Precision::float16},
          {.name = "float16, overflows", .precision = Precision::float16, .scale = 0x1p40},
          {.name = "sharded", .adamw = true, .sharded = true, .average = true},
          {.name = "sharded sgd, clipped", .sharded = true, .accumulate = 2, .max_norm = 0.2}};
}

optim::Schedule schedule_of(const TrainingLength& length) {
  return optim::warm_up({.steps = length.steps / 4, .first_factor = 0.1}, optim::cosine_decay({.steps = length.steps}));
}

optim::LossScalerOptions scaler_of(const Recipe& recipe) {
  return {.initial_scale = recipe.scale, .growth_interval = 3};
}

constexpr optim::MovingAverageOptions kAverage{.decay = 0.5};

// Model, optimizer and data of a recipe.
struct Parts {
  Parts(const Recipe& the_recipe, Context& context)
      : recipe(the_recipe),
        loader(waves, {.batch_size = batch_size(context.communicator()), .workers = 1, .remainder = recipe.remainder},
               context.shard()) {
    if (recipe.sharded && recipe.adamw) {
      sharded.emplace(*model, torch::optim::AdamWOptions(0.01));
    } else if (recipe.sharded) {
      sharded.emplace(*model, torch::optim::SGDOptions(0.1).momentum(0.9));
    } else if (recipe.adamw) {
      plain = std::make_unique<torch::optim::AdamW>(model->parameters(), torch::optim::AdamWOptions(0.01));
    } else {
      plain = std::make_unique<torch::optim::SGD>(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    }
  }

  TrainerOptimizer optimizer() {
    if (sharded) return *sharded;
    return *plain;
  }

  at::Tensor loss(const data::Batch& batch) {
    return torch::nn::functional::cross_entropy(model->forward(batch.images.to(device()).flatten(1)),
                                                batch.labels.to(device()));
  }

  // Everything that a training changes, end to end. All ranks must call it.
  at::Tensor everything(const optim::MovingAverage* average) {
    std::vector<at::Tensor> parts;
    const auto add = [&](const at::Tensor& tensor) {
      parts.push_back(tensor.detach().cpu().to(at::kDouble).flatten());
    };
    for (const auto& tensor : model->parameters()) add(tensor);
    if (plain) {
      for (const auto& [name, tensor] : optim::optimizer_state(*plain, *model)) add(tensor);
    } else {
      for (const auto& [name, tensor] : sharded->state_dict()) add(tensor);
    }
    if (average != nullptr) {
      for (const auto& [name, tensor] : average->named_tensors()) add(tensor);
    }
    return at::cat(parts);
  }

  Recipe recipe;
  Waves waves;
  data::DataLoader loader;
  torch::nn::Sequential model = small_model();
  std::unique_ptr<torch::optim::Optimizer> plain;
  std::optional<ShardedOptimizer> sharded;
};

TrainerOptions options_of(const Recipe& recipe) {
  TrainerOptions options{.epochs = kEpochs,
                         .accumulate = recipe.accumulate,
                         .precision = recipe.precision,
                         .max_gradient_norm = recipe.max_norm,
                         .schedule = schedule_of,
                         .loss_scaler = scaler_of(recipe),
                         .log_every_steps = 3,
                         .tensor_board = false,
                         .mlflow = false};
  if (recipe.average) options.moving_average = kAverage;
  return options;
}

// A recipe in a loop by hand, as docs/synchronization.md and the headers describe it.
at::Tensor by_hand(const Recipe& recipe, Context& context) {
  Parts parts{recipe, context};
  auto& communicator = context.communicator();
  SynchronizerOptions synchronization;
  if (parts.sharded) synchronization.wire_format = parts.sharded->wire_format();
  GradientSynchronizer synchronizer{*parts.model, communicator, synchronization};
  std::optional<optim::MovingAverage> average;
  if (recipe.average) average.emplace(*parts.model, kAverage);
  std::optional<optim::LossScaler> scaler;
  if (recipe.precision == Precision::float16) scaler.emplace(scaler_of(recipe));

  const auto batches = static_cast<std::int64_t>(parts.loader.batches_per_epoch());
  const auto steps = (batches + recipe.accumulate - 1) / recipe.accumulate;
  const auto schedule = schedule_of({.epochs = kEpochs, .steps = kEpochs * steps, .steps_per_epoch = steps});
  std::optional<optim::LearningRate> rate;
  if (parts.plain) rate.emplace(*parts.plain, recipe.adamw ? 0.01 : 0.1, schedule);

  std::int64_t step = 0;
  for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    auto loader_epoch = parts.loader.epoch(static_cast<std::uint64_t>(epoch));
    for (std::int64_t first = 0; first < batches; first += recipe.accumulate, ++step) {
      std::vector<data::Batch> micro;
      std::int64_t samples = 0;
      while (std::ssize(micro) < std::min(recipe.accumulate, batches - first)) {
        micro.push_back(*loader_epoch.next());
        samples += micro.back().size();
        // The loader reuses the memory of a batch.
        micro.back() = {micro.back().images.clone(), micro.back().labels.clone()};
      }
      std::erase_if(micro, [](const auto& batch) { return batch.size() == 0; });
      if (rate) rate->set(step);
      if (parts.sharded) parts.sharded->set_learning_rate_factor(schedule(step));
      bool has_gradients = true;
      if (recipe.remainder == data::Remainder::exact && first + recipe.accumulate >= batches &&
          kSamples % static_cast<std::uint64_t>(communicator.world_size()) != 0) {
        if (samples > 0) synchronizer.set_samples(samples);
      }
      if (samples == 0) {
        synchronizer.join();
      } else {
        for (std::size_t index = 0; index < micro.size(); ++index) {
          at::Tensor loss;
          {
            std::optional<Autocast> autocast;
            if (recipe.precision == Precision::bfloat16) autocast.emplace(device());
            if (recipe.precision == Precision::float16) autocast.emplace(device(), AutocastOptions{.type = at::kHalf});
            loss = parts.loss(micro[index]);
          }
          if (micro.size() > 1) {
            loss = loss / (static_cast<double>(samples) / static_cast<double>(micro[index].size()));
          }
          std::optional<GradientSynchronizer::NoSync> guard;
          if (index + 1 < micro.size()) guard.emplace(synchronizer.no_sync());
          if (scaler) loss = scaler->scale(loss);
          loss.backward();
        }
        has_gradients = synchronizer.wait();
      }
      EXPECT_TRUE(has_gradients);
      if (parts.sharded) {
        if (recipe.max_norm) parts.sharded->clip_gradients(*recipe.max_norm);
        parts.sharded->step();
      } else {
        if (scaler && recipe.max_norm) scaler->unscale(*parts.plain);
        if (recipe.max_norm) optim::clip_gradients(parts.model->parameters(), {.max_norm = *recipe.max_norm});
        if (scaler) {
          scaler->step(*parts.plain);
          scaler->update();
        } else {
          parts.plain->step();
        }
      }
      if (average) average->update(*parts.model);
      synchronizer.zero_grad();
    }
  }
  return parts.everything(average ? &*average : nullptr);
}

TEST(Trainer, GivesTheBitsOfALoopByHand) {
  on_ranks([](Communicator& communicator) {
    for (const auto& recipe : recipes()) {
      TestRun run{communicator};
      const auto context = run.start();
      const auto expected = by_hand(recipe, *context);
      Parts parts{recipe, *context};
      Trainer trainer{*context, options_of(recipe)};
      auto& part = trainer.add("model", parts.model, parts.optimizer());
      trainer.fit(parts.loader, [&](const data::Batch& batch) { return parts.loss(batch); });
      EXPECT_TRUE(at::equal(parts.everything(part.moving_average()), expected)) << recipe.name;
    }
  });
}

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

TEST(Trainer, ContinuesBitForBitAfterInterruptions) {
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

TEST(Trainer, EvaluatesEverySampleOnceAndKeepsTheBest) {
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

TEST(Trainer, MaySaveAndEvaluateWithinAnEpochAndEndThere) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto context = run.start();
    Parts parts{{}, *context};
    auto options = options_of({});
    options.max_steps = 5;
    options.evaluate_every_steps = 2;
    options.checkpoints = {.every_steps = 3, .last = std::nullopt};
    Trainer trainer{*context, parts.model, *parts.plain, options};
    std::vector<std::int64_t> evaluated;
    trainer.evaluate_with([&] {
      evaluated.push_back(trainer.state().step);
      return std::map<std::string, double>{};
    });
    trainer.fit(parts.loader, [&](const data::Batch& batch) { return parts.loss(batch); });
    EXPECT_EQ(trainer.state().step, 5);
    const auto steps = static_cast<std::int64_t>(parts.loader.batches_per_epoch());
    std::set<std::int64_t> expected{2, 4, 5};
    for (std::int64_t step = steps; step <= 5; step += steps) expected.insert(step);
    EXPECT_EQ(std::set<std::int64_t>(evaluated.begin(), evaluated.end()), expected);
    EXPECT_EQ(evaluated.size(), expected.size());
    if (communicator.rank() != 0) return;
    std::set<std::int64_t> kept;
    for (const auto& checkpoint : list_checkpoints(run.checkpoints())) kept.insert(checkpoint.step);
    EXPECT_TRUE(kept.contains(3) && kept.contains(5));
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

TEST(Trainer, StopsAfterTheSameStepOnAllRanksWithACheckpoint) {
  on_ranks([](Communicator& communicator) {
    TestRun undisturbed{communicator};
    const auto expected = train({}, undisturbed, 0);
    TestRun run{communicator};
    const auto message = stop(run, 3, -1);
    EXPECT_THAT(message, AllOf(HasSubstr("SIGTERM on rank 0"), HasSubstr("at step ")));
    for (const auto& other : communicator.all_gather_bytes(message)) EXPECT_EQ(other, message);
    communicator.barrier();
    EXPECT_TRUE(at::equal(train({}, run, 0), expected));
    if (communicator.rank() == 0) {
      EXPECT_EQ(curves(run), curves(undisturbed));
    }
  });
}

TEST(Trainer, CutsAnEvaluationShortAndRepeatsIt) {
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
TEST(Trainer, RepeatsTheLastEvaluationAndHasFinishedThen) {
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
      communicator.barrier();
      if (communicator.rank() == 0) {
        EXPECT_EQ(run.records("evaluation", "label").size(), 1U);
        EXPECT_TRUE(std::filesystem::exists(best / "manifest.json"));
      }
    }
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

TEST(Trainer, DoesNotTrainAFinishedRunAgain) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto steps = steps_of_run(run, 2, {{"width", "8"}}, "auto");
    EXPECT_GT(steps, 0);
    EXPECT_EQ(steps_of_run(run, 2, {{"width", "8"}}, "auto"), 0);
  });
}

TEST(Trainer, RefusesToContinueWithAnotherConfiguration) {
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

TEST(Trainer, StartsAnewAndKeepsEarlierCheckpoints) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto steps = steps_of_run(run, 2, {}, "auto");
    communicator.barrier();
    EXPECT_EQ(steps_of_run(run, 2, {}, "none"), steps);
    communicator.barrier();
    const auto first = run.checkpoints() / checkpoint_folder_name(steps / 2);
    EXPECT_EQ(steps_of_run(run, 2, {}, first.string()), steps / 2);
    communicator.barrier();
    if (communicator.rank() != 0) return;
    EXPECT_EQ(list_checkpoints(run.checkpoints()).size(), 1U);
    EXPECT_EQ(list_checkpoints(run.checkpoints().string() + ".1").size(), 2U);
    EXPECT_EQ(list_checkpoints(run.checkpoints().string() + ".2").size(), 2U);
  });
}

// As with another number of ranks: other steps in an epoch.
TEST(Trainer, FollowsTheScheduleAtTheSamePlaceInTheDataWithAnotherBatchSize) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const Waves waves{96};
    const auto fit = [&](std::uint64_t size, std::int64_t stop_after, const std::string& resume) {
      const auto context = run.start({}, resume);
      Parts parts{{}, *context};
      data::DataLoader loader{waves, {.batch_size = size, .workers = 1}, context->shard()};
      auto options = options_of({});
      options.epochs = 4;
      options.log_every_steps = 1;
      options.schedule = [](const TrainingLength& length) {
        return [length](std::int64_t step) { return static_cast<double>(step) / static_cast<double>(length.steps); };
      };
      Trainer trainer{*context, parts.model, *parts.plain, options};
      trainer.after_step([&](const TrainingState& state) {
        if (state.step == stop_after) throw Interrupted{};
      });
      trainer.fit(loader, [&](const data::Batch& batch) { return parts.loss(batch); });
    };
    const auto size = 12 / static_cast<std::uint64_t>(communicator.world_size());  // 8 steps in an epoch
    EXPECT_THROW(fit(size, 17, "auto"), Interrupted);  // the last checkpoint is that of step 16
    communicator.barrier();
    fit(2 * size, -1, run.checkpoints().string());
    communicator.barrier();
    if (communicator.rank() != 0) return;
    const auto rates = run.records("step", "learning_rate");
    EXPECT_DOUBLE_EQ(rates.at(16), 0.1 * 15 / 32);
    EXPECT_DOUBLE_EQ(rates.at(17), 0.1 * 8 / 16);
    EXPECT_DOUBLE_EQ(rates.at(24), 0.1 * 15 / 16);
    EXPECT_EQ(rates.size(), 24U);
  });
}

TEST(Trainer, DoesNotStartAnewWhereAllCheckpointsAreDamaged) {
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

// ---- What a program may do while it trains

TEST(Trainer, EndsTheTrainingForTheProgram) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    for (const bool is_first : {true, false}) {
      const auto context = run.start();
      Parts parts{{}, *context};
      auto options = options_of({});
      options.moving_average = kAverage;
      options.checkpoints.every_epochs = 0;
      options.checkpoints.every_steps = static_cast<std::int64_t>(parts.loader.batches_per_epoch());
      Trainer trainer{*context, parts.model, *parts.plain, options};
      std::int64_t batches = 0;
      std::int64_t evaluations = 0;
      trainer.evaluate_with([&] {
        ++evaluations;
        const auto average = trainer.part().moving_average()->named_tensors().front().second;
        EXPECT_TRUE(at::equal(parts.model->parameters().front(), average));
        return std::map<std::string, double>{{"of rank 0", communicator.rank()}};
      });
      trainer.after_epoch([&](const TrainingState& state) {
        // Written at the end of the first epoch, by its number of steps.
        if (state.epoch == 2) trainer.end_training();
      });
      trainer.fit(parts.loader, [&](const data::Batch& batch) {
        ++batches;
        return parts.loss(batch);
      });
      EXPECT_EQ(batches, is_first ? 2 * options.checkpoints.every_steps : 0);
      EXPECT_EQ(evaluations, is_first ? 2 : 0);
      EXPECT_EQ(trainer.state().evaluation.at("of rank 0"), 0);
      communicator.barrier();
      if (communicator.rank() == 0) {
        EXPECT_EQ(list_checkpoints(run.checkpoints()).size(), 2U);
      }
    }
  });
}

// After the last step no round compares them any more.
TEST(Trainer, ComparesTheReplicasBeforeAnEvaluation) {
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

TEST(Trainer, RefusesRanksOfDifferentConfigurations) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    TestRun run{communicator};
    const auto context = run.start({{"width", communicator.rank() == 1 ? "9" : "8"}});
    Parts parts{{}, *context};
    Trainer trainer{*context, parts.model, *parts.plain, {.tensor_board = false}};
    EXPECT_THAT(message_of<UsageError>(
                    [&] { trainer.fit(parts.loader, [&](const data::Batch& batch) { return parts.loss(batch); }); }),
                AllOf(HasSubstr("--width = 9"), HasSubstr("Give all ranks the same options")));
  });
}

// ---- Mistakes

TEST(Trainer, NamesMistakesOfASteps) {
  on_ranks([](Communicator& communicator) {
    const auto message_with = [&](const std::function<StepResult(Parts&, TrainerPart&, const data::Batch&)>& step) {
      TestRun run{communicator};
      const auto context = run.start();
      Parts parts{{}, *context};
      Trainer trainer{*context, {.checkpoints = {.enabled = false}, .tensor_board = false}};
      auto& part = trainer.add("model", parts.model, *parts.plain);
      return message_of<UsageError>(
          [&] { trainer.fit(parts.loader, [&](const data::Batch& batch) { return step(parts, part, batch); }); });
    };
    EXPECT_THAT(message_with([](Parts&, TrainerPart&, const data::Batch&) { return StepResult::updated({}); }),
                HasSubstr("returned no loss"));
    EXPECT_THAT(message_with([](Parts& parts, TrainerPart&, const data::Batch& batch) {
                  return StepResult{parts.model->forward(batch.images.to(device()).flatten(1))};
                }),
                HasSubstr("loss of shape ["));
    EXPECT_THAT(message_with([](Parts& parts, TrainerPart&, const data::Batch& batch) {
                  return StepResult{parts.loss(batch).detach()};
                }),
                HasSubstr("loss without a gradient"));
    EXPECT_THAT(message_with([](Parts& parts, TrainerPart&, const data::Batch& batch) {
                  return StepResult{parts.loss(batch), {{"outputs", batch.labels}}};
                }),
                HasSubstr("'outputs' is a tensor of shape ["));
  });
}

TEST(Trainer, NamesMistakesOfOptionsAndCalls) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto context = run.start();
    EXPECT_THAT(message_of<UsageError>([&] { Trainer{*context, {.epochs = 0}}; }), HasSubstr("TrainerOptions::epochs"));
    EXPECT_THAT(message_of<UsageError>([&] { Trainer{*context, {.evaluations_without_improvement = 2}}; }),
                HasSubstr("needs a metric"));
    Parts parts{{}, *context};
    Trainer trainer{*context, parts.model, *parts.plain, {.checkpoints = {.metric = "f1"}, .tensor_board = false}};
    EXPECT_THAT(message_of<UsageError>([&] { trainer.trackers(); }), HasSubstr("before fit()"));
    trainer.evaluate_with([] { return std::map<std::string, double>{{"accuracy", 0.5}}; });
    const auto fit = [&] { trainer.fit(parts.loader, [&](const data::Batch& batch) { return parts.loss(batch); }); };
    EXPECT_THAT(message_of<UsageError>(fit), AllOf(HasSubstr("no 'f1'"), HasSubstr("accuracy")));
    EXPECT_THAT(message_of<UsageError>(fit), HasSubstr("called twice"));
    EXPECT_THAT(message_of<UsageError>([&] { trainer.add("second", parts.model, *parts.plain); }),
                HasSubstr("after fit()"));
  });
}

}  // namespace
}  // namespace libtrain
