// What does a Trainer cost? The same steps of a small network in a loop by hand and in a Trainer with metrics.jsonl,
// TensorBoard and alerts, alternating in one process:
//
//   bench_trainer                  or mpirun -n 2 bench_trainer
//
// The goal is at most 20 microseconds a step more.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <libtrain/libtrain.hpp>

namespace lt = libtrain;

namespace {

constexpr double kGoal_s = 20e-6;
constexpr std::int64_t kInputs = 16;

// Samples without work, as many as are asked for.
class Constants : public lt::data::Dataset {
 public:
  explicit Constants(std::uint64_t size) : size_(size) {}
  std::uint64_t size() const override { return size_; }
  lt::data::Sample get(std::uint64_t index, lt::data::SampleRandom& /*random*/) const override {
    return {image_, static_cast<std::int64_t>(index % 4)};
  }

 private:
  const std::uint64_t size_;
  const torch::Tensor image_ = torch::ones({1, 1, kInputs});
};

struct Network {
  torch::nn::Sequential model{torch::nn::Linear(kInputs, 32), torch::nn::ReLU(), torch::nn::Linear(32, 4)};
  torch::optim::SGD sgd{model->parameters(), torch::optim::SGDOptions(1e-4).momentum(0.9)};

  torch::Tensor loss(const lt::data::Batch& batch) {
    return torch::cross_entropy_loss(model->forward(batch.images.flatten(1)), batch.labels);
  }
};

// Seconds of a step, from the end of step `warm_up` to that of the last one.
class StepTimer {
 public:
  StepTimer(std::int64_t warm_up, std::int64_t steps) : warm_up_(warm_up), steps_(steps) {}
  void after(std::int64_t step) {
    if (step == warm_up_) stopwatch_.restart();
    if (step == warm_up_ + steps_) seconds_ = stopwatch_.seconds() / static_cast<double>(steps_);
  }
  double seconds() const { return seconds_; }

 private:
  std::int64_t warm_up_;
  std::int64_t steps_;
  lt::Stopwatch stopwatch_;
  double seconds_ = 0;
};

double by_hand(lt::Context& context, lt::data::DataLoader& loader, std::int64_t warm_up, std::int64_t steps) {
  Network network;
  lt::GradientSynchronizer synchronizer{*network.model, context.communicator()};
  StepTimer timer{warm_up, steps};
  std::int64_t step = 0;
  for (auto& batch : loader.epoch(0)) {
    network.loss(batch).backward();
    synchronizer.wait();
    network.sgd.step();
    synchronizer.zero_grad();
    timer.after(++step);
    if (step == warm_up + steps) break;
  }
  return timer.seconds();
}

double in_trainer(lt::Context& context, lt::data::DataLoader& loader, std::int64_t warm_up, std::int64_t steps) {
  Network network;
  lt::Trainer trainer{
      context, network.model, network.sgd, {.max_steps = warm_up + steps, .checkpoints = {.enabled = false}}};
  StepTimer timer{warm_up, steps};
  trainer.after_step([&](const lt::TrainingState& state) { timer.after(state.step); });
  trainer.fit(loader, [&](const lt::data::Batch& batch) { return network.loss(batch); });
  return timer.seconds();
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

void run_bench(lt::Context& context) {
  const auto rounds = context.integer("rounds", 1);
  const auto warm_up = context.integer("warmup", 1);
  const auto steps = context.integer("steps", 1);
  const auto batch_size = static_cast<std::uint64_t>(context.integer("batch-size", 1));
  const Constants samples{batch_size * static_cast<std::uint64_t>(context.world_size() * (warm_up + steps + 8))};
  lt::data::DataLoader loader{
      samples, {.batch_size = batch_size, .workers = 1, .order = lt::data::Order::sequential}, context.shard()};
  std::vector<double> hand_s;
  std::vector<double> trainer_s;
  std::vector<double> differences_s;
  for (std::int64_t round = 0; round < rounds; ++round) {
    hand_s.push_back(by_hand(context, loader, warm_up, steps));
    trainer_s.push_back(in_trainer(context, loader, warm_up, steps));
    differences_s.push_back(trainer_s.back() - hand_s.back());
  }
  if (context.rank() != 0) return;
  const double least = std::ranges::min(trainer_s) - std::ranges::min(hand_s);
  std::printf("%6s %12s %12s %22s %22s %10s\n", "ranks", "by hand us", "Trainer us", "difference of minima us",
              "median difference us", "goal us");
  std::printf("%6d %12.1f %12.1f %23.1f %22.1f %10.0f\n", context.world_size(), 1e6 * median(hand_s),
              1e6 * median(trainer_s), 1e6 * least, 1e6 * median(differences_s), 1e6 * kGoal_s);
  if (context.option("json").empty()) return;
  auto file = lt::MetricsWriter::to_file(context.option("json"));
  file.write(lt::Record{"trainer_step"}
                 .set("implementation", "libtrain")
                 .set("ranks", context.world_size())
                 .set("by_hand_median_s", median(hand_s))
                 .set("trainer_median_s", median(trainer_s))
                 .set("difference_of_minima_s", least)
                 .set("median_difference_s", median(differences_s))
                 .set("goal_s", kGoal_s)
                 .set("rounds", rounds)
                 .set("git_revision", lt::build_info().git_revision));
}

}  // namespace

int main(int argc, char** argv) {
  return lt::run(argc, argv,
                 {.description = "Compares a Trainer's steps with those of a loop by hand.",
                  .options = {{"rounds", "Times that both are run", "15"},
                              {"warmup", "Steps before the timed ones", "50"},
                              {"steps", "Timed steps in a round", "1000"},
                              {"batch-size", "Samples per rank and step", "4"},
                              {"json", "File for the result as a JSON line", ""}}},
                 run_bench);
}
