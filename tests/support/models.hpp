#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn.h>

namespace libtrain::testing {

/// A network for parity tests and the data it is fed.
struct TestModel {
  std::function<at::Tensor(const at::Tensor&)> forward;
  std::shared_ptr<torch::nn::Module> module;
  std::vector<std::int64_t> input_shape;  ///< of one sample
};

/// "mlp", "conv" (no batch norm) or "transformer", with weights that are a function of `seed`.
TestModel make_model(const std::string& kind, at::ScalarType type, std::uint64_t seed);

/// Inputs [count, ...] and targets [count, 3], a function of `seed`.
struct TestBatch {
  at::Tensor inputs;
  at::Tensor targets;
};
TestBatch make_batch(const TestModel& model, std::int64_t count, at::ScalarType type, std::uint64_t seed);

}  // namespace libtrain::testing
