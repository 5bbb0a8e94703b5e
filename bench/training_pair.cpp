#include <bench/training_pair.hpp>

#include <cstddef>
#include <limits>
#include <stdexcept>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <libtrain/optim/fused_sgd.hpp>
#include <libtrain/train/autocast.hpp>

namespace libtrain::bench {

namespace {

std::unique_ptr<torch::optim::Optimizer> make_sgd(const Workload& workload, Sgd sgd) {
  const auto options = torch::optim::SGDOptions(workload.learning_rate).momentum(0.9);
  if (sgd == Sgd::fused) return std::make_unique<optim::FusedSgd>(workload.module->parameters(), options);
  return std::make_unique<torch::optim::SGD>(workload.module->parameters(), options);
}

Workload seeded_workload(const TrainingPairOptions& options, std::uint64_t seed) {
  torch::manual_seed(seed);
  return make_workload(options.workload, options.batch, options.image_size, options.placement);
}

std::uint64_t draw_seed() {
  return static_cast<std::uint64_t>(
      torch::randint(std::numeric_limits<std::int64_t>::max(), {1}, torch::kLong).item<std::int64_t>());
}

void copy_weights(const torch::nn::Module& from, const torch::nn::Module& to) {
  const torch::NoGradGuard no_grad;
  const auto copy = [](const auto& sources, const auto& targets) {
    for (std::size_t k = 0; k < sources.size(); ++k) targets[k].copy_(sources[k]);
  };
  copy(from.parameters(), to.parameters());
  copy(from.buffers(), to.buffers());
}

}  // namespace

TrainingPair::Side::Side(const TrainingPairOptions& options, std::uint64_t seed)
    : workload(seeded_workload(options, seed)), sgd(make_sgd(workload, options.sgd)) {
  if (options.precision == at::kHalf) scaler.emplace();
}

TrainingPair::TrainingPair(const TrainingPairOptions& options, Communicator& communicator)
    : options_(options),
      communicator_(communicator),
      seed_(draw_seed()),
      alone_(options, seed_),
      together_(options, seed_),
      synchronizer_(
          *together_.workload.module, communicator,
          {.buckets = {.bucket_bytes = options.bucket_bytes}, .overlap = options.overlap, .trace = options.trace}) {
  copy_weights(*together_.workload.module, *alone_.workload.module);
}

void TrainingPair::step_alone() {
  alone_.sgd->zero_grad();
  backward(alone_);
  step(alone_);
}

void TrainingPair::step_together() {
  synchronizer_.zero_grad();
  backward(together_);
  synchronizer_.wait();
  step(together_);
}

void TrainingPair::backward(Side& side) {
  at::Tensor loss;
  if (options_.precision == at::kFloat) {
    loss = side.workload.loss();
  } else {
    const Autocast autocast{options_.placement.device, {.type = options_.precision}};
    loss = side.workload.loss();
  }
  if (side.scaler) loss = side.scaler->scale(loss);
  loss.backward();
}

void TrainingPair::step(Side& side) {
  if (!side.scaler) {
    side.sgd->step();
    return;
  }
  side.scaler->step(*side.sgd);
  side.scaler->update();
}

void TrainingPair::wait_for_device() const {
  const c10::Device device = options_.placement.device;
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

void TrainingPair::require_equal_weights() {
  double sum = 0;
  for (const auto& parameter : together_.workload.module->parameters())
    sum += parameter.detach().to(torch::kDouble).abs().sum().item<double>();
  const auto largest = torch::full({1}, sum, torch::kDouble);
  const auto smallest = largest.clone();
  communicator_.all_reduce(largest, ReduceOp::maximum).wait();
  communicator_.all_reduce(smallest, ReduceOp::minimum).wait();
  if (!torch::equal(largest, smallest)) throw std::runtime_error("The ranks' weights differ after synchronised steps.");
}

std::int64_t TrainingPair::parameters() const {
  std::int64_t elements = 0;
  for (const auto& parameter : alone_.workload.module->parameters()) elements += parameter.numel();
  return elements;
}

}  // namespace libtrain::bench
