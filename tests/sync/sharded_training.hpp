#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <libtrain/sync/gradient_synchronizer.hpp>
#include <libtrain/sync/sharded_optimizer.hpp>

#include <tests/support/device.hpp>

// A module whose gradients are known, trained by a ShardedOptimizer on ranks and by torch's optimizers alone.

namespace libtrain::test {

/// Parameters a, b, c and d, float64, whose sizes no number of ranks divides, one of them channels_last.
struct Network : torch::nn::Module {
  Network() {
    add("a", {3, 5});
    add("b", {17});
    add("c", {});
    add("d", {4, 2, 3, 3});
    const torch::NoGradGuard no_grad;
    weights[3].set_data(weights[3].contiguous(at::MemoryFormat::ChannelsLast));
  }

  at::Tensor& operator[](char letter) { return weights[static_cast<std::size_t>(letter - 'a')]; }

  /// Values in [-1, 1]: the gradient of a parameter in a step.
  static at::Tensor gradient_of(const at::Tensor& weight, int index, int step) {
    const auto places = torch::arange(weight.numel(), on_device(at::kDouble));
    return places.add(0.3 + index + 10 * step).sin().view(weight.sizes());
  }

  /// A loss that gives every parameter of `letters` its gradient times `factor`.
  at::Tensor loss(int step, double factor, const std::string& letters = "abcd") {
    auto sum = torch::zeros({}, on_device(at::kDouble));
    for (const char letter : letters) {
      const auto& weight = (*this)[letter];
      sum = sum + (weight * gradient_of(weight, letter - 'a', step)).sum() * factor;
    }
    return sum;
  }

  std::vector<at::Tensor> weights;

 private:
  void add(const std::string& name, at::IntArrayRef sizes) {
    const auto places = torch::arange(torch::empty(sizes).numel(), on_device(at::kDouble));
    weights.push_back(register_parameter(name, places.cos().view(sizes)));
  }
};

/// The reference: one of torch's optimizers on the average of all ranks' gradients.
struct Alone {
  explicit Alone(const ShardedRule& rule) {
    if (const auto* sgd = std::get_if<torch::optim::SGDOptions>(&rule)) {
      optimizer = std::make_unique<torch::optim::SGD>(network.weights, *sgd);
    } else {
      optimizer = std::make_unique<torch::optim::AdamW>(network.weights, std::get<torch::optim::AdamWOptions>(rule));
    }
  }

  void take(int step, double factor, const std::string& letters = "abcd") {
    optimizer->zero_grad();
    for (const char letter : letters) {
      const auto& weight = network[letter];
      weight.mutable_grad() = Network::gradient_of(weight, letter - 'a', step) * factor;
    }
    optimizer->step();
  }

  Network network;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

/// Several buckets.
inline SynchronizerOptions small_buckets() {
  return {.buckets = {.bucket_bytes = 200, .first_bucket_bytes = 100}};
}

/// One rank's training.
struct Sharded {
  Sharded(Communicator& the_communicator, const ShardedRule& rule, ShardedOptimizerOptions options = {},
          const SynchronizerOptions& synchronizer_options = small_buckets())
      : communicator(the_communicator),
        optimizer(network, rule, std::move(options)),
        synchronizer(network, the_communicator, with_format(synchronizer_options)) {}

  SynchronizerOptions with_format(SynchronizerOptions options) const {
    options.wire_format = optimizer.wire_format();
    return options;
  }

  /// What this rank's gradients count; their average over the ranks is `mean_factor()`.
  double factor() const { return communicator.rank() + 1; }
  double mean_factor() const { return (communicator.world_size() + 1) / 2.0; }

  void reduce(int step, const std::string& letters = "abcd") {
    network.loss(step, factor(), letters).backward();
    EXPECT_TRUE(synchronizer.wait());
  }

  void take(int step, const std::string& letters = "abcd") {
    reduce(step, letters);
    optimizer.step();
    synchronizer.zero_grad();
  }

  Communicator& communicator;
  Network network;
  ShardedOptimizer optimizer;
  GradientSynchronizer synchronizer;
};

/// Within rounding.
inline void expect_equal_weights(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& wanted,
                                 const std::string& when = {}) {
  ASSERT_EQ(actual.size(), wanted.size());
  for (std::size_t index = 0; index < wanted.size(); ++index) {
    EXPECT_TRUE(torch::allclose(actual[index].cpu(), wanted[index].cpu(), 1e-10, 1e-12))
        << "parameter " << static_cast<char>('a' + index) << " " << when;
  }
}

inline void expect_equal_weights(const Network& actual, const Network& wanted, const std::string& when = {}) {
  expect_equal_weights(actual.weights, wanted.weights, when);
}

}  // namespace libtrain::test
