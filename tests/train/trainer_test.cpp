#include <libtrain/train/trainer.hpp>

#include <signal.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/stop_request.hpp>
#include <libtrain/checkpoint/checkpoint_folder.hpp>
#include <libtrain/checkpoint/weights.hpp>
#include <libtrain/optim/gradient_clipping.hpp>
#include <libtrain/optim/learning_rate.hpp>
#include <libtrain/sync/replica_check.hpp>
#include <libtrain/train/autocast.hpp>

#include <tests/support/device.hpp>
#include <tests/support/log_sinks.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/train/trainer_runs.hpp>

namespace libtrain {
namespace {

using test::device;
using test::message_of;
using test::on_ranks;
using test::trainer::kAverage;
using test::trainer::kEpochs;
using test::trainer::kSamples;
using test::trainer::options_of;
using test::trainer::Parts;
using test::trainer::Recipe;
using test::trainer::recipes;
using test::trainer::scaler_of;
using test::trainer::schedule_of;
using test::trainer::TestRun;
using test::trainer::Waves;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

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
        if (!scaler || parts.sharded->unscale(*scaler)) {
          if (recipe.max_norm) parts.sharded->clip_gradients(*recipe.max_norm);
          parts.sharded->step();
          parts.sharded->wait_for_parameters();
        }
        if (scaler) scaler->update();
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

void expect_end_by_the_program(Communicator& communicator, std::int64_t evaluate_every_epochs) {
  TestRun run{communicator};
  for (const bool is_first : {true, false}) {
    const auto context = run.start();
    Parts parts{{}, *context};
    auto options = options_of({});
    options.moving_average = kAverage;
    options.evaluate_every_epochs = evaluate_every_epochs;
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
    EXPECT_EQ(evaluations, !is_first ? 0 : evaluate_every_epochs == 0 ? 1 : 2);
    EXPECT_EQ(trainer.state().evaluation.at("of rank 0"), 0);
    communicator.barrier();
    if (communicator.rank() == 0) {
      EXPECT_EQ(list_checkpoints(run.checkpoints()).size(), 2U);
      EXPECT_EQ(run.records("evaluation", "epoch").at(2 * options.checkpoints.every_steps), 1);
    }
  }
}

TEST(Trainer, EndsTheTrainingForTheProgram) {
  on_ranks([](Communicator& communicator) {
    for (const std::int64_t every_epochs : {0, 1}) expect_end_by_the_program(communicator, every_epochs);
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

// Every sample counts once, whatever the sizes of batches and the shares of ranks.
TEST(Trainer, RecordsMeansOverSamples) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto context = run.start();
    Parts parts{{.remainder = data::Remainder::exact}, *context};
    auto options = options_of({.accumulate = 2});
    options.epochs = 1;
    options.log_every_steps = 1000;
    Trainer trainer{*context, parts.model, *parts.plain, options};
    const auto label = torch::zeros({}, test::on_device(at::kDouble));
    trainer.fit(parts.loader, [&](const data::Batch& batch) {
      label.copy_(batch.labels.to(at::kDouble).mean());  // the same memory for all batches
      const auto weight = parts.model->parameters().back()[0];
      return StepResult{parts.loss(batch), {{"label", label}, {"weight", weight}, {"copy", weight.detach().clone()}}};
    });
    double labels = 0;
    for (std::uint64_t index = 0; index < kSamples; ++index) labels += static_cast<double>(index % 3);
    const auto& metrics = trainer.state().metrics;
    EXPECT_DOUBLE_EQ(metrics.at("label"), labels / kSamples);
    EXPECT_EQ(metrics.at("weight"), metrics.at("copy"));
    EXPECT_EQ(trainer.state().samples, static_cast<std::int64_t>(kSamples));
  });
}

TEST(Trainer, WarnsIfAllRanksReadAllData) {
  on_ranks([](Communicator& communicator) {
    std::optional<test::CapturedLog> log;
    if (communicator.rank() == 0) log.emplace(LogLevel::warning);
    communicator.barrier();
    for (const bool is_shared : {true, false}) {
      TestRun run{communicator};
      const auto context = run.start();
      Parts parts{{}, *context};
      auto options = options_of({});
      options.epochs = 1;
      Trainer trainer{*context, parts.model, *parts.plain, options};
      data::DataLoader loader{parts.waves,
                              {.batch_size = 2, .workers = 1},
                              is_shared ? context->shard() : data::RankShard{{}, device(), {}}};
      trainer.fit(loader, [&](const data::Batch& batch) { return parts.loss(batch); });
      communicator.barrier();
      if (communicator.rank() != 0) continue;
      const bool warns = !is_shared && communicator.world_size() > 1;
      EXPECT_THAT(log->lines(), Contains(HasSubstr("Pass context.shard()")).Times(warns ? 1 : 0));
    }
    communicator.barrier();
  });
}

TEST(Trainer, TrainsOnFromACheckpointAfterWhichTheProgramHadEndedIt) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto epochs = [&](bool ends, const std::string& resume) {
      const auto context = run.start({}, resume);
      Parts parts{{}, *context};
      Trainer trainer{*context, parts.model, *parts.plain, options_of({})};
      trainer.after_epoch([&](const TrainingState&) {
        if (ends) trainer.end_training();
      });
      trainer.fit(parts.loader, [&](const data::Batch& batch) { return parts.loss(batch); });
      communicator.barrier();
      return trainer.state().epoch;
    };
    EXPECT_EQ(epochs(true, "auto"), 1);
    EXPECT_EQ(epochs(false, "auto"), 1);
    EXPECT_EQ(epochs(false, run.checkpoints().string()), 3);
  });
}

// A program may load weights between them.
TEST(Trainer, AveragesFromTheWeightsWithWhichFitBegins) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto context = run.start();
    Parts parts{{}, *context};
    auto options = options_of({});
    options.max_steps = 1;
    options.moving_average = {.decay = 0.75};
    Trainer trainer{*context, parts.model, *parts.plain, options};
    test::trainer::set_weights(*parts.model, 9);
    const auto before = parts.model->parameters().front().detach().clone();
    trainer.fit(parts.loader, [&](const data::Batch& batch) { return parts.loss(batch); });
    const auto after = parts.model->parameters().front().detach();
    const auto average = trainer.part().moving_average()->named_tensors().front().second;
    EXPECT_TRUE(at::allclose(average, before * 0.75 + after * 0.25));
  });
}

// An export, or a comparison, in a callback must not see parameters that are still being gathered.
// A model whose parameters take longer to gather than a step.
struct Wide {
  explicit Wide(Context& context)
      : waves(64),
        loader(waves, {.batch_size = 16 / static_cast<std::uint64_t>(context.world_size()), .workers = 1},
               context.shard()) {
    model->to(device());
    test::trainer::set_weights(*model, 3);
  }

  at::Tensor loss(const data::Batch& batch) { return outputs(batch).square().mean(); }
  at::Tensor outputs(const data::Batch& batch) { return model->forward(batch.images.to(device()).flatten(1)); }

  Waves waves;
  data::DataLoader loader;
  torch::nn::Sequential model{torch::nn::Linear(6, 8), torch::nn::Linear(8, 100'000)};
  ShardedOptimizer optimizer{*model, torch::optim::SGDOptions(0.1),
                             ShardedOptimizerOptions{.gather = ParameterGather::overlapped}};
};

// In callbacks, evaluations and checkpoints, each without the others.
TEST(Trainer, WaitsForParametersBeforeTheyAreRead) {
  on_ranks([](Communicator& communicator) {
    enum class Reader { after_step, after_epoch, evaluation, checkpoint };
    for (const auto reader : {Reader::after_step, Reader::after_epoch, Reader::evaluation, Reader::checkpoint}) {
      TestRun run{communicator};
      const auto context = run.start();
      Wide wide{*context};
      TrainerOptions options{.epochs = 1, .log_every_steps = 1000, .tensor_board = false};
      if (reader == Reader::evaluation) options.evaluate_every_steps = 1;
      options.checkpoints = {.enabled = reader == Reader::checkpoint, .every_steps = 1, .last = std::nullopt};
      Trainer trainer{*context, options};
      trainer.add("model", wide.model, wide.optimizer);
      std::int64_t calls = 0;
      const auto check = [&](const TrainingState&) {
        check_replicas(*wide.model, communicator);
        ++calls;
      };
      if (reader == Reader::after_step) trainer.after_step(check);
      if (reader == Reader::after_epoch) trainer.after_epoch(check);
      if (reader == Reader::evaluation) {
        trainer.evaluate_with([&] {
          check(trainer.state());
          return std::map<std::string, double>{};
        });
      }
      trainer.fit(wide.loader, [&](const data::Batch& batch) { return wide.loss(batch); });
      const std::int64_t steps = trainer.state().step;
      EXPECT_GE(steps, 4);
      EXPECT_EQ(calls, reader == Reader::after_epoch ? 1 : reader == Reader::checkpoint ? 0 : steps);
      if (reader != Reader::checkpoint) continue;
      // What was saved after each step is what a loop that waits in each step has.
      Wide again{*context};
      GradientSynchronizer synchronizer{*again.model, communicator, {.wire_format = again.optimizer.wire_format()}};
      std::int64_t step = 0;
      for (auto& batch : again.loader.epoch(0)) {
        again.loss(batch).backward();
        synchronizer.wait();
        again.optimizer.step();
        again.optimizer.wait_for_parameters();
        synchronizer.zero_grad();
        if (communicator.rank() != 0) continue;
        const auto saved =
            read_tensors((run.checkpoints() / checkpoint_folder_name(++step) / "model.safetensors").string());
        for (const auto& item : again.model->named_parameters())
          EXPECT_TRUE(at::equal(saved.at(item.key()), item.value().detach().cpu())) << step << ' ' << item.key();
      }
    }
  });
}

// GradientSynchronizer skips the step before the scaler sees the overflow.
TEST(Trainer, LowersTheLossScaleOfSkippedSteps) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto context = run.start();
    Parts parts{{}, *context};
    auto options = options_of({.precision = Precision::float16, .scale = 0x1p22});
    options.synchronizer.non_finite = NonFinite::skipped;
    options.loss_scaler.growth_interval = 1000;
    Trainer trainer{*context, options};
    trainer.add("model", parts.model, *parts.plain);
    trainer.fit(parts.loader, [&](const data::Batch& batch) { return parts.loss(batch); });
    if (communicator.rank() != 0) return;
    const auto step = run.checkpoints() / checkpoint_folder_name(trainer.state().step);
    EXPECT_LT(read_tensors((step / "model-scaler.safetensors").string()).at("scale").item<double>(), 0x1p22);
  });
}

// In the last evaluation of the first of two trainers.
TEST(Trainer, LeavesALateStopRequestToTheNextTrainer) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto context = run.start();
    for (const bool is_first : {true, false}) {
      Parts parts{{}, *context};
      auto options = options_of({});
      options.epochs = 1;
      options.checkpoints.folder = is_first ? "first" : "second";
      Trainer trainer{*context, parts.model, *parts.plain, options};
      if (is_first) {
        trainer.evaluate_with([&] {
          if (communicator.rank() == 0) raise(SIGUSR1);
          return std::map<std::string, double>{{"one", 1}};
        });
      }
      const auto fit = [&] { trainer.fit(parts.loader, [&](const data::Batch& batch) { return parts.loss(batch); }); };
      if (is_first) {
        fit();
      } else {
        EXPECT_THROW(fit(), StoppedOnRequest);
        EXPECT_EQ(trainer.state().step, 1);
      }
    }
  });
}

TEST(Trainer, LeavesSignalsToTheProgramAfterTheTraining) {
  const auto handler = [] {
    struct sigaction action{};
    ::sigaction(SIGUSR1, nullptr, &action);
    return action.sa_handler;
  };
  const auto before = handler();  // MPICH has one of its own
  on_ranks([&](Communicator& communicator) {
    TestRun run{communicator};
    const auto context = run.start();
    Parts parts{{}, *context};
    auto options = options_of({});
    options.max_steps = 1;
    Trainer trainer{*context, parts.model, *parts.plain, options};
    trainer.fit(parts.loader, [&](const data::Batch& batch) {
      EXPECT_NE(handler(), before);
      return parts.loss(batch);
    });
    communicator.barrier();
    EXPECT_EQ(handler(), before);
    communicator.barrier();
  });
}

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
    EXPECT_THAT(message_with([](Parts& parts, TrainerPart&, const data::Batch& batch) {
                  return StepResult{parts.loss(batch), {{"epoch", parts.loss(batch).detach()}}};
                }),
                HasSubstr("the name 'epoch', which records use"));
    EXPECT_THAT(message_with([](Parts& parts, TrainerPart& part, const data::Batch& batch) {
                  part.update(parts.loss(batch));
                  return StepResult{parts.loss(batch)};
                }),
                HasSubstr("returned a loss, too"));
  });
}

TEST(Trainer, NamesMistakesOfAccumulatedUpdates) {
  on_ranks([](Communicator& communicator) {
    const auto message_with = [&](const std::vector<int>& updates_of_batches) {
      TestRun run{communicator};
      const auto context = run.start();
      Parts parts{{}, *context};
      Trainer trainer{*context, {.accumulate = 2, .checkpoints = {.enabled = false}, .tensor_board = false}};
      auto& part = trainer.add("model", parts.model, *parts.plain);
      auto second = test::trainer::small_model(4);
      torch::optim::SGD sgd{second->parameters(), torch::optim::SGDOptions(0.1)};
      auto& other = trainer.add("other", second, sgd);
      std::size_t batches = 0;
      return message_of<UsageError>([&] {
        trainer.fit(parts.loader, [&](const data::Batch& batch) {
          for (int update = 0; update < updates_of_batches.at(batches % 2); ++update) part.update(parts.loss(batch));
          ++batches;
          other.update(second->forward(batch.images.to(device()).flatten(1)).square().mean());
          return StepResult::updated({});
        });
      });
    };
    EXPECT_THAT(message_with({1, 0}), HasSubstr("was not called for the last batch"));
    EXPECT_THAT(message_with({2, 1}), HasSubstr("was called twice"));
  });
}

TEST(Trainer, NamesAStopRequestWithoutCheckpoints) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto context = run.start();
    Parts parts{{}, *context};
    Trainer trainer{*context, parts.model, *parts.plain, {.checkpoints = {.enabled = false}, .tensor_board = false}};
    trainer.after_step([&](const TrainingState&) { trainer.part().synchronizer().request_stop(); });
    const auto fit = [&] { trainer.fit(parts.loader, [&](const data::Batch& batch) { return parts.loss(batch); }); };
    EXPECT_THAT(message_of<UsageError>(fit), HasSubstr("end_training()"));
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
    EXPECT_THAT(message_of<UsageError>(fit), AllOf(HasSubstr("No evaluation gives 'f1'"), HasSubstr("accuracy")));
    EXPECT_THAT(message_of<UsageError>(fit), HasSubstr("after its fit()"));
    EXPECT_THAT(message_of<UsageError>([&] { trainer.add("second", parts.model, *parts.plain); }),
                HasSubstr("after fit()"));
  });
}

}  // namespace
}  // namespace libtrain
