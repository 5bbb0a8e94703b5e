#include <bench/training_pair.hpp>

#include <stdexcept>

#include <torch/types.h>

namespace libtrain::bench {

namespace {

torch::optim::SGDOptions sgd_options() {
  return torch::optim::SGDOptions(0.001).momentum(0.9);
}

Workload workload_of(const TrainingPairOptions& options) {
  return make_workload(options.workload, options.batch, options.image_size);
}

}  // namespace

TrainingPair::TrainingPair(const TrainingPairOptions& options, Communicator& communicator)
    : communicator_(communicator),
      alone_(workload_of(options)),
      together_(workload_of(options)),
      sgd_alone_(alone_.module->parameters(), sgd_options()),
      sgd_together_(together_.module->parameters(), sgd_options()),
      synchronizer_(
          *together_.module, communicator,
          {.buckets = {.bucket_bytes = options.bucket_bytes}, .overlap = options.overlap, .trace = options.trace}) {}

void TrainingPair::step_alone() {
  sgd_alone_.zero_grad();
  alone_.loss().backward();
  sgd_alone_.step();
}

void TrainingPair::step_together() {
  synchronizer_.zero_grad();
  together_.loss().backward();
  synchronizer_.wait();
  sgd_together_.step();
}

void TrainingPair::require_equal_weights() {
  double sum = 0;
  for (const auto& parameter : together_.module->parameters())
    sum += parameter.detach().to(torch::kDouble).abs().sum().item<double>();
  const auto largest = torch::full({1}, sum, torch::kDouble);
  const auto smallest = largest.clone();
  communicator_.all_reduce(largest, ReduceOp::maximum).wait();
  communicator_.all_reduce(smallest, ReduceOp::minimum).wait();
  if (!torch::equal(largest, smallest)) throw std::runtime_error("The ranks' weights differ after synchronised steps.");
}

std::int64_t TrainingPair::parameters() const {
  std::int64_t elements = 0;
  for (const auto& parameter : alone_.module->parameters()) elements += parameter.numel();
  return elements;
}

}  // namespace libtrain::bench
