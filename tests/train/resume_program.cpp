// A training run that writes checkpoints and goes on from the newest one, for resume_test.py:
//
//   mpirun -n 2 resume_program --data digits-folder --output run --kill-at-step 25
//
// Rank 1, or the only one, kills itself before that step. With --store, save() returns when the checkpoint is uploaded.
// At the end the program prints checksums of the weights and of the optimizer's state.

#include <csignal>
#include <cstdint>
#include <iostream>
#include <optional>

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <libtrain/data/data_loader.hpp>
#include <libtrain/data/idx_images.hpp>
#include <libtrain/optim/fused_adamw.hpp>
#include <libtrain/optim/optimizer_state.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>
#include <libtrain/train/checkpoint.hpp>
#include <libtrain/train/run.hpp>

namespace lt = libtrain;

namespace {

constexpr std::int64_t kEpochs = 2;
constexpr std::int64_t kStepsBetween = 7;

// The sum of the bit patterns, which no two different runs are likely to share.
std::uint64_t checksum(const std::vector<at::Tensor>& tensors) {
  std::uint64_t sum = 0;
  for (const auto& tensor : tensors) {
    const auto bits = tensor.detach().contiguous().view(at::kInt);
    const auto* const values = bits.const_data_ptr<std::int32_t>();
    for (std::int64_t index = 0; index < bits.numel(); ++index)
      sum = sum * 1'000'003 + static_cast<std::uint32_t>(values[index]);
  }
  return sum;
}

void train(lt::Context& context) {
  const lt::data::IdxImages images{context.option("data"), lt::data::IdxSplit::train, {.classes = 10}};
  const auto batch_size = static_cast<std::uint64_t>(context.integer("batch-size", 1));
  lt::data::DataLoader loader{images, {.batch_size = batch_size, .workers = 1}, context.shard()};
  torch::nn::Sequential model{torch::nn::Linear(images.height() * images.width(), 32), torch::nn::Dropout(0.2),
                              torch::nn::Linear(32, 10)};
  lt::GradientSynchronizer synchronizer{*model, context.communicator()};
  lt::optim::FusedAdamW adamw{model->parameters(), torch::optim::AdamWOptions(0.003)};
  const auto store = context.option("store");
  lt::Checkpoint checkpoint{context, {.in_background = store.empty(), .store = store}};
  checkpoint.add("model", *model);
  checkpoint.add("optimizer", adamw, *model);

  std::int64_t step = 0;
  std::int64_t first_epoch = 0;
  std::optional<lt::data::LoaderState> resumed;
  if (const auto position = checkpoint.load_latest()) {
    step = position->step;
    first_epoch = position->epoch;
    resumed = position->loader;
    if (context.rank() == 0) std::cout << "resumed at step " << step << std::endl;
  }
  const auto kill_at_step = context.integer("kill-at-step");
  const int killed_rank = context.world_size() > 1 ? 1 : 0;
  for (auto epoch = first_epoch; epoch < kEpochs; ++epoch) {
    auto batches = resumed ? loader.resume(*resumed) : loader.epoch(static_cast<std::uint64_t>(epoch));
    resumed.reset();
    while (const auto batch = batches.next()) {
      if (++step == kill_at_step && context.rank() == killed_rank) std::raise(SIGKILL);
      const auto outputs = model->forward(batch->images.flatten(1));
      torch::nn::functional::cross_entropy(outputs, batch->labels).backward();
      synchronizer.wait();
      adamw.step();
      synchronizer.zero_grad();
      if (step % kStepsBetween == 0) checkpoint.save({.step = step, .epoch = epoch, .loader = batches.state()});
    }
  }
  checkpoint.wait();
  if (context.rank() != 0) return;
  std::vector<at::Tensor> state;
  for (const auto& [name, tensor] : lt::optim::optimizer_state(adamw, *model)) {
    if (tensor.is_floating_point()) state.push_back(tensor);
  }
  std::cout << "weights " << checksum(model->parameters()) << " optimizer " << checksum(state) << " after " << step
            << " steps" << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  return lt::run(argc, argv,
                 {.description = "Trains with checkpoints, and kills itself.",
                  .options = {{"data", "Folder with MNIST's four files", "examples/digits/data"},
                              {"batch-size", "Images per rank and step", "32"},
                              {"store", "Location in an object store for the checkpoints as well", ""},
                              {"kill-at-step", "Step before which a rank kills itself; 0: none", "0"}}},
                 train);
}
