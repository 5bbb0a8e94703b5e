#include <tests/support/training.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <libtrain/base/error.hpp>
#include <libtrain/sync/sync_batch_norm.hpp>

#include <tests/support/device.hpp>

namespace libtrain::test {

namespace {

constexpr int kSteps = 20;
constexpr std::int64_t kBatch = 4;

// Steps until the rank with most batches has used them up.
int epoch_of(int world_size) {
  return 2 * world_size;
}

bool has_branch(Regime regime) {
  return regime == Regime::unused || regime == Regime::unused_found || regime == Regime::unused_declared;
}

bool has_batch_norm(const Recipe& recipe) {
  return recipe.model == "batch_norm";
}

std::int64_t samples_of(Regime regime, int step, int rank, int world_size) {
  if (regime == Regime::uneven_batches) return 2 * (rank + 1);
  if (regime == Regime::uneven_counts && step % epoch_of(world_size) >= 2 * (rank + 1)) return 0;
  return kBatch;
}

bool takes_branch(Regime regime, int step, int rank, int world_size) {
  const bool taken_by_none = step % 7 == 6;
  return has_branch(regime) && !taken_by_none && rank != step % (world_size + 1);
}

// What all ranks are given for one micro-step, in rank order.
TestBatch batch_of_all(const Recipe& recipe, const TestModel& model, int step, int micro_step, int world_size) {
  std::int64_t samples = 0;
  std::vector<at::Tensor> through_branch;
  for (int rank = 0; rank < world_size; ++rank) {
    const auto first = samples;
    samples += samples_of(recipe.regime, step, rank, world_size);
    if (takes_branch(recipe.regime, step, rank, world_size)) {
      through_branch.push_back(torch::arange(first, samples, device()));
    }
  }
  const auto seed = static_cast<std::uint64_t>(1000 * step + micro_step);
  auto batch = make_batch(model, samples, recipe.type, seed);
  if (!through_branch.empty()) batch.through_branch = torch::cat(through_branch);
  return batch;
}

// A step of one process: one batch, unless batch norm's statistics make micro-steps something else.
std::vector<TestBatch> batches_alone(const Recipe& recipe, const TestModel& model, int step, int world_size) {
  std::vector<TestBatch> batches;
  for (int micro_step = 0; micro_step < micro_steps_of(recipe.regime); ++micro_step) {
    batches.push_back(batch_of_all(recipe, model, step, micro_step, world_size));
  }
  if (batches.size() == 1 || has_batch_norm(recipe)) return batches;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> targets;
  for (const auto& batch : batches) {
    inputs.push_back(batch.inputs);
    targets.push_back(batch.targets);
  }
  return {TestBatch{torch::cat(inputs), torch::cat(targets)}};
}

std::map<std::string, at::Tensor> parameters_by_name(const torch::nn::Module& module) {
  std::map<std::string, at::Tensor> result;
  for (const auto& item : module.named_parameters()) result.emplace(item.key(), item.value());
  return result;
}

at::Tensor flat_gradients(const torch::nn::Module& module) {
  std::vector<at::Tensor> parts;
  for (const auto& [name, parameter] : parameters_by_name(module)) {
    const auto& gradient = parameter.grad();
    parts.push_back(gradient.defined() ? gradient.flatten() : torch::zeros_like(parameter.detach()).flatten());
  }
  return torch::cat(parts);
}

std::string without_gradient(const torch::nn::Module& module, int step) {
  std::string result;
  for (const auto& [name, parameter] : parameters_by_name(module)) {
    if (!parameter.grad().defined()) result += "step " + std::to_string(step) + ": " + name + "\n";
  }
  return result;
}

SynchronizerOptions synchronizer_options(const Recipe& recipe, const TogetherOptions& options) {
  auto result = options.synchronizer;
  if (has_branch(recipe.regime)) result.unused = UnusedParameters::allowed;
  if (options.make_wire_format) result.wire_format = options.make_wire_format();
  return result;
}

// One rank's training.
class Replica {
 public:
  Replica(const Recipe& recipe, Communicator& communicator, const TogetherOptions& options)
      : recipe_(recipe),
        rank_(communicator.rank()),
        world_size_(communicator.world_size()),
        zero_grad_(options.zero_grad),
        // Every rank starts from weights of its own: rank 0's must win.
        model_(make_model(recipe, 1 + static_cast<std::uint64_t>(rank_))) {
    replace_batch_norms(*model_.module, communicator);
    synchronizer_.emplace(*model_.module, communicator, synchronizer_options(recipe, options));
    optimizer_ = make_optimizer(recipe, *model_.module);
  }

  Outcome train() {
    std::string undefined;
    for (int step = 0; step < steps_of(recipe_, world_size_); ++step) {
      take_step(step);
      undefined += without_gradient(*model_.module, step);
      const bool epoch_ends = (step + 1) % epoch_of(world_size_) == 0;
      if (recipe_.regime == Regime::uneven_counts && epoch_ends) {
        EXPECT_FALSE(synchronizer_->join());
      }
    }
    return {flat_weights(*model_.module), flat_gradients(*model_.module), undefined};
  }

 private:
  void take_step(int step) {
    const auto samples = samples_of(recipe_.regime, step, rank_, world_size_);
    if (samples == 0 && !has_batch_norm(recipe_)) {
      EXPECT_TRUE(synchronizer_->join());
    } else {
      zero_grad();
      prepare_round(step, samples);
      run_micro_steps(step);
      EXPECT_TRUE(synchronizer_->wait());
    }
    optimizer_->step();
  }

  void zero_grad() {
    switch (zero_grad_) {
      case ZeroGrad::of_synchronizer:
        return synchronizer_->zero_grad();
      case ZeroGrad::of_optimizer_to_none:
        return optimizer_->zero_grad(true);
      case ZeroGrad::of_optimizer_to_zero:
        return optimizer_->zero_grad(false);
    }
  }

  void prepare_round(int step, std::int64_t samples) {
    if (recipe_.regime == Regime::uneven_batches || recipe_.regime == Regime::uneven_counts) {
      synchronizer_->set_samples(samples);
      for (const auto& module : model_.module->modules()) {
        if (auto* norm = module->as<SyncBatchNorm>()) norm->set_gradient_weight(static_cast<double>(samples));
      }
    }
    if (recipe_.regime == Regime::unused_declared) {
      std::vector<std::string> names;
      if (!takes_branch(recipe_.regime, step, rank_, world_size_)) names = {"branch.weight", "branch.bias"};
      synchronizer_->declare_unused(names);
    }
  }

  void run_micro_steps(int step) {
    const int micro_steps = micro_steps_of(recipe_.regime);
    for (int micro_step = 0; micro_step < micro_steps; ++micro_step) {
      std::optional<GradientSynchronizer::NoSync> guard;
      if (micro_step + 1 < micro_steps) guard.emplace(synchronizer_->no_sync());
      const auto batch = batch_of_rank(recipe_, model_, step, micro_step, rank_, world_size_);
      const auto loss = loss_of(model_, batch) / micro_steps;
      if (recipe_.regime == Regime::unused_found) synchronizer_->find_unused({loss});
      loss.backward();
    }
  }

  const Recipe recipe_;
  const int rank_;
  const int world_size_;
  const ZeroGrad zero_grad_;
  TestModel model_;
  std::optional<GradientSynchronizer> synchronizer_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

}  // namespace

std::string to_string(Regime regime) {
  switch (regime) {
    case Regime::plain:
      return "plain";
    case Regime::accumulation:
      return "accumulation";
    case Regime::unused:
      return "unused";
    case Regime::unused_found:
      return "unused_found";
    case Regime::unused_declared:
      return "unused_declared";
    case Regime::uneven_batches:
      return "uneven_batches";
    case Regime::uneven_counts:
      return "uneven_counts";
  }
  return "";
}

int steps_of(const Recipe& recipe, int world_size) {
  if (recipe.regime != Regime::uneven_counts) return kSteps;
  const int epoch = epoch_of(world_size);
  return (kSteps + epoch - 1) / epoch * epoch;
}

TestModel make_model(const Recipe& recipe, std::uint64_t seed) {
  return make_model(recipe.model, recipe.type, seed, has_branch(recipe.regime) ? Branch::with : Branch::without);
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const Recipe& recipe, const torch::nn::Module& module) {
  std::vector<at::Tensor> parameters;
  for (const auto& parameter : module.parameters()) {
    const auto same = [&](const at::Tensor& other) { return other.is_same(parameter); };
    if (std::none_of(parameters.begin(), parameters.end(), same)) parameters.push_back(parameter);
  }
  if (recipe.optimizer == "sgd") {
    return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.03).momentum(0.9));
  }
  if (recipe.optimizer == "adamw") {
    // Gradients that are 0 but for rounding, such as those of an attention key's bias, must not become whole steps.
    return std::make_unique<torch::optim::AdamW>(parameters, torch::optim::AdamWOptions(0.01).eps(1e-3));
  }
  throw UsageError("There is no optimizer '" + recipe.optimizer + "' for tests.");
}

int micro_steps_of(Regime regime) {
  return regime == Regime::accumulation ? 3 : 1;
}

TestBatch batch_of_rank(const Recipe& recipe, const TestModel& model, int step, int micro_step, int rank,
                        int world_size) {
  const auto all = batch_of_all(recipe, model, step, micro_step, world_size);
  std::int64_t first = 0;
  for (int before = 0; before < rank; ++before) first += samples_of(recipe.regime, step, before, world_size);
  const auto samples = samples_of(recipe.regime, step, rank, world_size);
  TestBatch batch{all.inputs.narrow(0, first, samples), all.targets.narrow(0, first, samples)};
  if (takes_branch(recipe.regime, step, rank, world_size)) batch.through_branch = torch::arange(samples, device());
  return batch;
}

at::Tensor flat_weights(const torch::nn::Module& module) {
  auto tensors = parameters_by_name(module);
  for (const auto& item : module.named_buffers()) {
    if (item.value().is_floating_point()) tensors.emplace(item.key(), item.value());
  }
  std::vector<at::Tensor> parts;
  for (const auto& [name, tensor] : tensors) parts.push_back(tensor.detach().flatten());
  return torch::cat(parts);
}

Outcome train_alone(const Recipe& recipe, int world_size) {
  const auto model = make_model(recipe, 1);
  const auto optimizer = make_optimizer(recipe, *model.module);
  std::string undefined;
  for (int step = 0; step < steps_of(recipe, world_size); ++step) {
    optimizer->zero_grad();
    const auto batches = batches_alone(recipe, model, step, world_size);
    for (const auto& batch : batches) (loss_of(model, batch) / static_cast<double>(batches.size())).backward();
    optimizer->step();
    undefined += without_gradient(*model.module, step);
  }
  return {flat_weights(*model.module), flat_gradients(*model.module), undefined};
}

Outcome train_together(const Recipe& recipe, Communicator& communicator, const TogetherOptions& options) {
  return Replica{recipe, communicator, options}.train();
}

}  // namespace libtrain::test
