#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sin.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <nlohmann/json.hpp>

#include <libtrain/data/data_loader.hpp>
#include <libtrain/data/dataset.hpp>
#include <libtrain/optim/optimizer_state.hpp>
#include <libtrain/sync/sharded_optimizer.hpp>
#include <libtrain/train/context.hpp>
#include <libtrain/train/trainer.hpp>

#include <tests/support/device.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::test::trainer {

inline constexpr std::uint64_t kSamples = 113;  // no multiple of any number of ranks or batch size

/// About equally many steps with any number of ranks.
inline std::uint64_t batch_size(const Communicator& communicator) {
  return 16 / static_cast<std::uint64_t>(communicator.world_size());
}

/// Sample i has six values, and one of three classes.
class Waves : public data::Dataset {
 public:
  explicit Waves(std::uint64_t size = kSamples) : size_(size) {}
  std::uint64_t size() const override { return size_; }
  data::Sample get(std::uint64_t index, data::SampleRandom& /*random*/) const override {
    return {at::sin(at::arange(6, at::kFloat) * static_cast<double>(index + 1)).view({1, 2, 3}),
            static_cast<std::int64_t>(index % 3)};
  }

 private:
  std::uint64_t size_;
};

/// Ranks that are threads share LibTorch's generator: weights are a function of the seed instead.
inline void set_weights(torch::nn::Module& module, double seed) {
  const at::NoGradGuard no_grad;
  for (auto& parameter : module.parameters()) {
    parameter.copy_(at::sin(at::arange(parameter.numel(), at::kFloat) * seed).view(parameter.sizes()) / 3);
  }
}

inline torch::nn::Sequential small_model(double seed = 5) {
  torch::nn::Sequential model{torch::nn::Linear(6, 8), torch::nn::ReLU(), torch::nn::Linear(8, 3)};
  model->to(device());
  set_weights(*model, seed);
  return model;
}

/// A run's folder and its context, as `run` makes them; the same folder on all ranks.
class TestRun {
 public:
  explicit TestRun(Communicator& communicator) : communicator_(communicator) {
    if (communicator.rank() == 0) folder_.emplace();
    path_ = communicator.broadcast_bytes(folder_ ? folder_->path().string() : "", 0);
  }
  ~TestRun() { communicator_.barrier(); }

  // Another process of the same run.
  std::unique_ptr<Context> start(std::map<std::string, std::string> options = {}, std::string resume = "auto") {
    RunOptions run{.output = path_ + "/out", .seed = 3, .quiet = true, .resume = std::move(resume)};
    run.options = std::move(options);
    return std::make_unique<Context>(
        Connection{std::shared_ptr<Communicator>(std::shared_ptr<void>{}, &communicator_), device()}, run, Launch{},
        "run" + std::to_string(++starts_));
  }

  std::filesystem::path output() const { return std::filesystem::path{path_} / "out"; }
  std::filesystem::path checkpoints() const { return output() / "checkpoints"; }

  // The records of an event: step and value of `name`. Of a step that was made twice, the second one counts.
  std::map<std::int64_t, double> records(const std::string& event, const std::string& name) const {
    std::map<std::int64_t, double> values;
    std::ifstream file(output() / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const auto record = nlohmann::json::parse(line);
      if (record.at("event") == event && record.contains(name)) values[record.at("step")] = record.at(name);
    }
    return values;
  }

 private:
  Communicator& communicator_;
  std::optional<TemporaryFolder> folder_;
  std::string path_;
  int starts_ = 0;
};

inline constexpr std::int64_t kEpochs = 3;

/// One way to train.
struct Recipe {
  std::string name;
  bool adamw = false;
  bool sharded = false;
  ParameterGather gather = ParameterGather::in_step;  // of a sharded optimizer
  std::int64_t accumulate = 1;
  data::Remainder remainder = data::Remainder::drop;
  std::optional<double> max_norm = {};
  bool average = false;
  Precision precision = Precision::float32;
  double scale = 64;  // the first one
};

inline std::vector<Recipe> recipes() {
  return {{.name = "sgd"},
          {.name = "adamw, clipped", .adamw = true, .max_norm = 0.1},
          {.name = "accumulated", .accumulate = 3, .remainder = data::Remainder::pad},
          {.name = "uneven", .accumulate = 2, .remainder = data::Remainder::exact},
          {.name = "uneven, with a step of one sample", .remainder = data::Remainder::exact},
          {.name = "average", .average = true},
          {.name = "bfloat16", .adamw = true, .precision = Precision::bfloat16},
          {.name = "float16", .max_norm = 0.5, .precision = Precision::float16},
          {.name = "float16, overflows", .precision = Precision::float16, .scale = 0x1p22},
          {.name = "float16, uneven",
           .remainder = data::Remainder::exact,
           .precision = Precision::float16,
           .scale = 0x1p22},
          {.name = "sharded, float16, overflows",
           .adamw = true,
           .sharded = true,
           .max_norm = 0.5,
           .precision = Precision::float16,
           .scale = 0x1p22},
          {.name = "sharded", .adamw = true, .sharded = true, .average = true},
          {.name = "sharded sgd, clipped", .sharded = true, .accumulate = 2, .max_norm = 0.2},
          {.name = "sharded, overlapped", .adamw = true, .sharded = true, .gather = ParameterGather::overlapped}};
}

inline optim::Schedule schedule_of(const TrainingLength& length) {
  return optim::warm_up({.steps = length.steps / 4, .first_factor = 0.1}, optim::cosine_decay({.steps = length.steps}));
}

inline optim::LossScalerOptions scaler_of(const Recipe& recipe) {
  return {.initial_scale = recipe.scale, .growth_interval = 3};
}

inline constexpr optim::MovingAverageOptions kAverage{.decay = 0.5};

/// Model, optimizer and data of a recipe.
struct Parts {
  Parts(const Recipe& the_recipe, Context& context)
      : recipe(the_recipe),
        loader(waves, {.batch_size = batch_size(context.communicator()), .workers = 1, .remainder = recipe.remainder},
               context.shard()) {
    if (recipe.sharded && recipe.adamw) {
      sharded.emplace(*model, torch::optim::AdamWOptions(0.01), ShardedOptimizerOptions{.gather = recipe.gather});
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

inline TrainerOptions options_of(const Recipe& recipe) {
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

}  // namespace libtrain::test::trainer
