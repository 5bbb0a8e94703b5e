// How long does a checkpoint take? Saves ResNet-50 with the momentum of SGD in the background, and loads it, verified:
//
//   bench_checkpoint --output FOLDER
//
// bench/compare_checkpoint.py compares it with dd and torch.save on the same disk. With --steps it trains, with a
// checkpoint every --every steps, and says what share of the time the steps wait for checkpoints.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>

#include <libtrain/libtrain.hpp>
#include <libtrain/models/resnet.hpp>

namespace lt = libtrain;

namespace {

struct Training {
  lt::models::ResNet model = lt::models::resnet50({.classes = 1000});
  lt::optim::FusedSgd sgd{model->parameters(), torch::optim::SGDOptions(1e-4).momentum(0.9)};
  torch::Tensor images = torch::randn({4, 3, 64, 64});
  torch::Tensor labels = torch::randint(1000, {4}, torch::kLong);

  void step(lt::GradientSynchronizer& synchronizer) {
    torch::cross_entropy_loss(model->forward(images), labels).backward();
    synchronizer.wait();
    sgd.step();
    synchronizer.zero_grad();
  }

  std::int64_t bytes() const {
    std::int64_t bytes = 0;
    for (const auto& [name, tensor] : lt::optim::named_tensors(*model))
      bytes += static_cast<std::int64_t>(tensor.nbytes());
    for (const auto& [name, tensor] : lt::optim::optimizer_state(sgd, *model))
      bytes += static_cast<std::int64_t>(tensor.nbytes());
    return bytes;
  }
};

void run_bench(lt::Context& context) {
  const auto steps = context.integer("steps");
  const auto every = context.integer("every", 1);
  Training training;
  lt::GradientSynchronizer synchronizer{*training.model, context.communicator()};
  training.step(synchronizer);

  lt::Checkpoint checkpoint{context};
  checkpoint.add("model", *training.model);
  checkpoint.add("optimizer", training.sgd, *training.model);
  double stalled_s = 0;
  const auto save = [&](std::int64_t step) {
    const lt::Stopwatch stopwatch;
    checkpoint.save({.step = step});
    stalled_s += stopwatch.seconds();
  };
  lt::Record record{"checkpoint"};
  record.set("implementation", "libtrain").set("ranks", context.world_size()).set("bytes", training.bytes());
  if (steps > 0) {
    const lt::Stopwatch stopwatch;
    for (std::int64_t step = 1; step <= steps; ++step) {
      training.step(synchronizer);
      if (step % every == 0) save(step);
    }
    record.set("steps", steps).set("every", every).set("stalled_s", stalled_s).set("training_s", stopwatch.seconds());
    checkpoint.wait();
  } else {
    const lt::Stopwatch stopwatch;
    save(1);
    checkpoint.wait();
    record.set("stall_s", stalled_s).set("write_s", stopwatch.seconds());
    const lt::Stopwatch loading;
    checkpoint.load_latest();
    record.set("load_s", loading.seconds());
  }
  if (context.rank() == 0) std::fputs(record.line(0).c_str(), stdout);
}

}  // namespace

int main(int argc, char** argv) {
  return lt::run(argc, argv,
                 {.description = "Saves and loads a checkpoint of ResNet-50, and prints the times as JSON.",
                  .options = {{"steps", "Steps to train with checkpoints; 0: save and load once", "0"},
                              {"every", "Steps between checkpoints", "50"}}},
                 run_bench);
}
