// libtrain's side of ddp_parity_test.py: trains on two ranks as ddp_parity_peer.py does with PyTorch DDP, from the
// weights and data that it left, and writes the weights and the gradients of every step:
//
//   mpirun -n 2 ddp_parity_program --data FOLDER --optimizer sgd --micro-steps 3 --trajectory FILE --gradients FILE
//
// All files hold raw float32: `weights` the parameters end to end, `inputs` [steps, micro-steps, ranks, batch,
// features], and `targets` the same with outputs in place of features.

#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>
#include <libtrain/sync/wire/half_precision.hpp>
#include <libtrain/train/run.hpp>

namespace lt = libtrain;

namespace {

// The same as in ddp_parity_peer.py.
constexpr std::int64_t kSteps = 20;
constexpr std::int64_t kMaxMicroSteps = 3;
constexpr std::int64_t kRanks = 2;
constexpr std::int64_t kBatch = 4;
constexpr std::int64_t kFeatures = 6;
constexpr std::int64_t kOutputs = 3;

struct Network : torch::nn::Module {
  Network()
      : first(register_module("first", torch::nn::Linear(kFeatures, 16))),
        second(register_module("second", torch::nn::Linear(16, 16))),
        head(register_module("head", torch::nn::Linear(16, kOutputs))),
        side(register_module("side", torch::nn::Linear(kFeatures, kOutputs))) {}

  torch::Tensor forward(const torch::Tensor& inputs, bool with_side) {
    const auto outputs = head(torch::tanh(second(torch::tanh(first(inputs)))));
    return with_side ? outputs + side(inputs) : outputs;
  }

  torch::nn::Linear first;
  torch::nn::Linear second;
  torch::nn::Linear head;
  torch::nn::Linear side;
};

torch::Tensor read_floats(const std::string& path, at::IntArrayRef shape) {
  auto result = torch::empty(shape);
  const auto bytes = static_cast<std::streamsize>(result.nbytes());
  std::ifstream file{path, std::ios::binary};
  file.read(static_cast<char*>(result.mutable_data_ptr()), bytes);
  if (file.gcount() != bytes || file.peek() != std::ifstream::traits_type::eof()) {
    throw lt::EnvironmentError(lt::text("'", path, "' does not hold ", bytes, " bytes: run ddp_parity_peer.py first."));
  }
  return result;
}

void load_weights(torch::nn::Module& module, const std::string& path) {
  std::int64_t elements = 0;
  for (const auto& parameter : module.parameters()) elements += parameter.numel();
  const auto flat = read_floats(path, {elements});
  const torch::NoGradGuard no_grad;
  std::int64_t begin = 0;
  for (auto& parameter : module.parameters()) {
    parameter.copy_(flat.narrow(0, begin, parameter.numel()).view_as(parameter));
    begin += parameter.numel();
  }
}

torch::Tensor weights_of(const torch::nn::Module& module) {
  std::vector<torch::Tensor> parts;
  for (const auto& parameter : module.parameters()) parts.push_back(parameter.detach().flatten());
  return torch::cat(parts).cpu();
}

// Zeros for parameters that no rank used.
torch::Tensor gradients_of(const torch::nn::Module& module) {
  std::vector<torch::Tensor> parts;
  for (const auto& parameter : module.parameters()) {
    const auto& gradient = parameter.grad();
    parts.push_back((gradient.defined() ? gradient : torch::zeros_like(parameter)).detach().flatten());
  }
  return torch::cat(parts).cpu();
}

void write_floats(const std::string& path, const std::vector<torch::Tensor>& steps) {
  const auto values = torch::stack(steps);
  std::ofstream file{path, std::ios::binary};
  file.write(static_cast<const char*>(values.const_data_ptr()), static_cast<std::streamsize>(values.nbytes()));
  if (!file.flush()) throw lt::EnvironmentError(lt::text("'", path, "' cannot be written."));
}

// Rank 0 alone, rank 1 alone, both, none.
bool takes_side(std::int64_t step, int rank) {
  return step % 4 == rank || step % 4 == 2;
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& name, const torch::nn::Module& module) {
  if (name == "adamw") {
    return std::make_unique<torch::optim::AdamW>(module.parameters(),
                                                 torch::optim::AdamWOptions(0.01).weight_decay(0.01));
  }
  return std::make_unique<torch::optim::SGD>(module.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
}

lt::SynchronizerOptions synchronizer_options(const lt::Context& context) {
  lt::SynchronizerOptions options;
  if (context.option("unused") == "allowed") options.unused = lt::UnusedParameters::allowed;
  if (context.option("wire") == "bfloat16") {
    options.wire_format = std::make_shared<lt::HalfPrecisionWireFormat>(
        lt::HalfPrecisionOptions{.type = at::kBFloat16, .min_elements = 1});
  }
  return options;
}

void train(lt::Context& context) {
  if (context.world_size() != kRanks) throw lt::UsageError("This program runs on 2 ranks.");
  const auto folder = context.option("data") + "/";
  const bool may_be_unused = context.option("unused") == "allowed";
  const auto micro_steps = context.integer("micro-steps", 1, kMaxMicroSteps);
  const auto read = [&](const char* name, std::int64_t width) {
    return read_floats(folder + name, {kSteps, kMaxMicroSteps, kRanks, kBatch, width}).to(context.device());
  };
  const auto inputs = read("inputs", kFeatures);
  const auto targets = read("targets", kOutputs);

  const auto model = std::make_shared<Network>();
  model->to(context.device());
  if (context.rank() == 0) load_weights(*model, folder + "weights");
  lt::GradientSynchronizer synchronizer{*model, context.communicator(), synchronizer_options(context)};
  const auto optimizer = make_optimizer(context.option("optimizer"), *model);
  std::vector<torch::Tensor> trajectory;
  std::vector<torch::Tensor> gradients;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    for (std::int64_t micro_step = 0; micro_step < micro_steps; ++micro_step) {
      std::optional<lt::GradientSynchronizer::NoSync> guard;
      if (micro_step + 1 < micro_steps) guard.emplace(synchronizer.no_sync());
      const bool with_side = !may_be_unused || takes_side(step, context.rank());
      const auto outputs = model->forward(inputs[step][micro_step][context.rank()], with_side);
      const auto loss = torch::mse_loss(outputs, targets[step][micro_step][context.rank()]) / micro_steps;
      if (may_be_unused) synchronizer.find_unused({loss});
      loss.backward();
    }
    synchronizer.wait();
    gradients.push_back(gradients_of(*model));
    optimizer->step();
    synchronizer.zero_grad();
    trajectory.push_back(weights_of(*model));
  }
  if (context.rank() != 0) return;
  write_floats(context.option("trajectory"), trajectory);
  write_floats(context.option("gradients"), gradients);
}

}  // namespace

int main(int argc, char** argv) {
  return lt::run(argc, argv,
                 {.description = "Trains a small network for comparison with PyTorch DDP.",
                  .options = {{"data", "Folder with weights, inputs and targets"},
                              {"optimizer", "sgd (with momentum) or adamw", "sgd"},
                              {"micro-steps", "Backward passes a step, 1 to 3", "1"},
                              {"unused", "refused, or allowed: ranks leave a branch out in turn", "refused"},
                              {"wire", "float32 or bfloat16", "float32"},
                              {"trajectory", "File for the weights after every step"},
                              {"gradients", "File for the gradients of every step"}}},
                 train);
}
