#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn.h>

namespace libtrain::test {

/// A network for parity tests and the data it is fed. Smooth: a rounding error stays one, and does not switch a ReLU.
struct TestModel {
  std::function<at::Tensor(const at::Tensor&)> forward;  ///< [N, input_shape...] -> [N, 3]
  std::shared_ptr<torch::nn::Module> module;
  std::vector<std::int64_t> input_shape;  ///< of one sample
  /// A second way to the outputs, with parameters "branch.weight" and "branch.bias" of its own; null without.
  std::function<at::Tensor(const at::Tensor&)> branch = {};
};

enum class Branch { without, with };

/// "mlp", "conv" (no batch norm), "transformer", "tied" (one weight in two modules) or "batch_norm", with weights that
/// are a function of `seed`. With a branch, the network itself is the child "body".
TestModel make_model(const std::string& kind, at::ScalarType type, std::uint64_t seed, Branch branch = Branch::without);

/// Inputs [count, ...] and targets [count, 3], a function of `seed`.
struct TestBatch {
  at::Tensor inputs;
  at::Tensor targets;
  at::Tensor through_branch = {};  ///< indices of the samples that take the branch, too; undefined for none
};
TestBatch make_batch(const TestModel& model, std::int64_t count, at::ScalarType type, std::uint64_t seed);

/// The mean squared error of forward(), plus branch() for the samples that take it.
at::Tensor loss_of(const TestModel& model, const TestBatch& batch);

}  // namespace libtrain::test
