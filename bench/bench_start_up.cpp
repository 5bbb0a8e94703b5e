// How long is it from mpirun to the first step? A small network takes one synchronised step, and rank 0 prints a line
// as soon as all ranks have taken it. bench/compare_start_up.py measures the time until that line:
//
//   mpirun -n 2 bench_start_up
//
// bench/peers/ddp_start_up.py is the same with PyTorch DDP.

#include <cstdint>
#include <cstdio>

#include <libtrain/libtrain.hpp>

namespace lt = libtrain;

namespace {

constexpr std::int64_t kBatch = 32;
constexpr std::int64_t kInputs = 784;
constexpr std::int64_t kClasses = 10;

void take_first_step(lt::Context& context, const lt::Stopwatch& since_main) {
  torch::nn::Sequential model{torch::nn::Linear(kInputs, 128), torch::nn::ReLU(), torch::nn::Linear(128, 64),
                              torch::nn::ReLU(), torch::nn::Linear(64, kClasses)};
  torch::optim::SGD sgd{model->parameters(), torch::optim::SGDOptions(0.001).momentum(0.9)};
  lt::GradientSynchronizer synchronizer{*model, context.communicator()};
  const auto inputs = torch::randn({kBatch, kInputs});
  const auto labels = torch::randint(kClasses, {kBatch}, torch::kLong);
  torch::cross_entropy_loss(model->forward(inputs), labels).backward();
  synchronizer.wait();
  sgd.step();
  context.communicator().barrier();
  if (context.rank() != 0) return;
  std::printf("first step, %.3f s after main() began\n", since_main.seconds());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const lt::Stopwatch since_main;
  return lt::run(argc, argv, {.description = "Takes one synchronised step, and says when."},
                 [&](lt::Context& context) { take_first_step(context, since_main); });
}
