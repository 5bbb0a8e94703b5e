// A training that is interrupted and continues, for resume_test.py and stop_test.py:
//
//   mpirun -n 2 resume_program --output run --notes notes --kill-at 8,23 --hold-at "evaluation 20"
//
// Rank 1, or the only one, kills itself once before each of the steps of --kill-at. At --hold-at all ranks wait until
// the test creates the file "go" in the folder of the notes. Each rank leaves notes for the test there:
//
//   process.<rank>  its process identifier
//   samples.<rank>  a line for each batch: the step, and the numbers of the samples
//   held.<rank>     it has arrived at --hold-at
//   asked.<rank>    while it is held, it has received a signal to stop
//   killed.<step>   it kills itself before this step
//
// At the end rank 0 prints checksums of all that a training changes.

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <thread>

#include <ATen/ops/arange.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/data_loader.hpp>
#include <libtrain/optim/fused_adamw.hpp>
#include <libtrain/optim/optimizer_state.hpp>
#include <libtrain/sync/sharded_optimizer.hpp>
#include <libtrain/train/run.hpp>
#include <libtrain/train/trainer.hpp>

namespace lt = libtrain;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kFeatures = 8;
constexpr std::int64_t kClasses = 3;
constexpr auto kHeldAtMost = std::chrono::seconds(60);

// The label of a sample is its number.
class Waves : public lt::data::Dataset {
 public:
  explicit Waves(std::uint64_t size) : size_(size) {}
  std::uint64_t size() const override { return size_; }
  lt::data::Sample get(std::uint64_t index, lt::data::SampleRandom& random) const override {
    const auto phase = random.uniform();  // an augmentation
    const auto wave = (at::arange(kFeatures, at::kFloat) * static_cast<double>(index + 1) + phase).sin();
    return {wave.view({1, 1, kFeatures}), static_cast<std::int64_t>(index)};
  }

 private:
  std::uint64_t size_;
};

class Notes {
 public:
  explicit Notes(lt::Context& context) : context_(context), folder_(context.option("notes")) {
    if (folder_.empty()) return;
    fs::create_directories(folder_);
    std::ofstream(of_rank("process")) << getpid();
    samples_.open(of_rank("samples"), std::ios::app);
  }

  void add_samples(std::int64_t step, const at::Tensor& numbers) {
    if (!samples_.is_open()) return;
    samples_ << step;
    for (std::int64_t i = 0; i < numbers.numel(); ++i) samples_ << ' ' << numbers.const_data_ptr<std::int64_t>()[i];
    samples_ << std::endl;
  }

  void kill_before(std::int64_t step) const {
    if (context_.rank() != (context_.world_size() > 1 ? 1 : 0)) return;
    std::istringstream steps(context_.option("kill-at"));
    for (std::string each; std::getline(steps, each, ',');) {
      // Whether this is the first time.
      if (each == lt::text(step) && fs::create_directory(folder_ / lt::text("killed.", step))) std::raise(SIGKILL);
    }
  }

  void hold_at(const std::string& place) {
    if (place != context_.option("hold-at") || was_held_) return;
    was_held_ = true;
    std::ofstream(of_rank("held")).flush();
    const auto deadline = lt::Deadline::after(kHeldAtMost);
    while (!fs::exists(folder_ / "go")) {
      if (context_.stop_request().is_requested()) std::ofstream(of_rank("asked")).flush();
      if (deadline.expired()) throw std::runtime_error("The test has not created the file 'go'.");
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

 private:
  fs::path of_rank(const char* name) const { return folder_ / lt::text(name, '.', context_.rank()); }

  lt::Context& context_;
  const fs::path folder_;
  std::ofstream samples_;
  bool was_held_ = false;
};

// Depends on every bit and on the order.
std::uint64_t checksum(const lt::optim::NamedTensors& tensors) {
  std::uint64_t sum = 0;
  for (const auto& [name, tensor] : tensors) {
    const auto bytes = tensor.detach().cpu().contiguous().flatten().view(at::kByte);
    for (std::int64_t i = 0; i < bytes.numel(); ++i) sum = sum * 1'000'003 + bytes.const_data_ptr<std::uint8_t>()[i];
  }
  return sum;
}

void train(lt::Context& context) {
  Notes notes{context};
  const Waves waves{480};
  const Waves held_out_waves{25};  // the last one leaves the second of two ranks without a batch
  const auto batch_size = static_cast<std::uint64_t>(context.integer("batch-size", 1));
  lt::data::DataLoader loader{waves, {.batch_size = batch_size, .workers = 2}, context.shard()};
  lt::data::DataLoader held_out{
      held_out_waves, {.batch_size = 4, .workers = 1, .remainder = lt::data::Remainder::uneven}, context.shard()};
  const auto width = context.integer("width", 1);
  torch::nn::Sequential model{torch::nn::Linear(kFeatures, width), torch::nn::Dropout(0.2),
                              torch::nn::Linear(width, kClasses)};

  const auto choice = context.option("optimizer");
  std::unique_ptr<torch::optim::Optimizer> plain;
  std::optional<lt::ShardedOptimizer> sharded;
  if (choice == "sgd") {
    plain = std::make_unique<torch::optim::SGD>(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  } else if (choice == "adamw") {
    plain = std::make_unique<lt::optim::FusedAdamW>(model->parameters(), torch::optim::AdamWOptions(0.003));
  } else {
    sharded.emplace(*model, torch::optim::AdamWOptions(0.003));
  }

  const double decay = context.number("average", 0, 1);
  lt::TrainerOptions options{
      .epochs = context.integer("epochs", 1),
      .accumulate = context.integer("accumulate", 1),
      .precision = context.option("precision") == "bfloat16" ? lt::Precision::bfloat16 : lt::Precision::float32,
      .schedule = [](const lt::TrainingLength& length) { return lt::optim::cosine_decay({.steps = length.steps}); },
      .checkpoints = {.every_steps = context.integer("checkpoint-every"),
                      .metric = context.option("best"),
                      .best = lt::CheckpointRetention::Best::highest},
      .evaluate_every_steps = 10,
      .log_every_steps = 3};
  if (decay > 0) options.moving_average = {.decay = decay};
  lt::Trainer trainer{context, options};
  auto& part = trainer.add("model", model, sharded ? lt::TrainerOptimizer{*sharded} : lt::TrainerOptimizer{*plain});
  trainer.evaluate_with(held_out, {"accuracy"}, [&](const lt::data::Batch& batch) {
    notes.hold_at(lt::text("evaluation ", trainer.state().step));
    return model->forward(batch.images.flatten(1)).argmax(1).eq(batch.labels.remainder(kClasses));
  });
  trainer.fit(loader, [&](const lt::data::Batch& batch) {
    const auto step = trainer.state().step + 1;
    notes.add_samples(step, batch.labels);
    notes.kill_before(step);
    notes.hold_at(lt::text("step ", step));
    return torch::nn::functional::cross_entropy(model->forward(batch.images.flatten(1)),
                                                batch.labels.remainder(kClasses));
  });

  const auto state = sharded ? sharded->state_dict() : lt::optim::optimizer_state(*plain, *model);
  if (context.rank() != 0) return;
  std::cout << "weights " << checksum(lt::optim::named_tensors(*model)) << " optimizer " << checksum(state);
  if (const auto* const average = part.moving_average()) {
    std::cout << " average " << checksum(average->named_tensors());
  }
  std::cout << " after " << trainer.state().step << " steps" << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  const auto changes = [](std::string name, std::string help, std::string value) {
    return lt::Option{.name = std::move(name), .help = std::move(help), .value = std::move(value), .may_change = true};
  };
  return lt::run(argc, argv,
                 {.description = "Trains with a Trainer, and is interrupted.",
                  .options = {{"optimizer", "sgd, adamw or sharded", "sgd"},
                              {"precision", "float32 or bfloat16", "float32"},
                              {"average", "Decay of the moving average of the weights; 0: none", "0"},
                              {"accumulate", "Batches in a step", "1"},
                              {"batch-size", "Samples per rank and batch", "8"},
                              {"epochs", "Passes over the 480 samples", "2"},
                              {"best", "Value of the evaluation, whose best checkpoint is kept", ""},
                              {"width", "Hidden units of the model", "32"},
                              changes("checkpoint-every", "Steps between checkpoints; 0: only after epochs", "5"),
                              changes("notes", "Folder for the test, see above", ""),
                              changes("kill-at", "Steps before which a rank kills itself, with commas", ""),
                              changes("hold-at", "Where all ranks wait: \"step 5\" or \"evaluation 5\"", "")}},
                 train);
}
