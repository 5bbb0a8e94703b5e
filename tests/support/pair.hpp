#pragma once

#include <string>

#include <gtest/gtest.h>
#include <torch/nn.h>

#include <libtrain/comm/communicator.hpp>

#include <tests/support/device.hpp>

namespace libtrain::test {

/// A module whose gradients are what a test makes them: two parameters, float32 [4], that start as ones.
struct Pair : torch::nn::Module {
  at::Tensor left = register_parameter("left", torch::ones({4}, device()));
  at::Tensor right = register_parameter("right", torch::ones({4}, device()));

  /// Its gradient is `of_left` in every element of `left`, and `of_right` in those of `right`, which backward() reaches
  /// first.
  at::Tensor loss(double of_left, double of_right) const {
    const auto sum = left.sum() * of_left;
    return sum + right.sum() * of_right;
  }
};

/// Every element is `value`, within rounding; the test fails where the tensor is undefined.
inline void expect_all(const at::Tensor& tensor, double value, const std::string& what = {}) {
  ASSERT_TRUE(tensor.defined()) << what << " is undefined instead of " << value;
  const auto numbers = tensor.detach().cpu().to(at::kDouble);
  EXPECT_TRUE(torch::allclose(numbers, torch::full_like(numbers, value), 1e-6, 1e-9))
      << what << " is " << numbers << " instead of " << value;
}

/// The average of `value(rank)` over `world_size` ranks.
template <typename Value>
double mean_over_ranks(int world_size, const Value& value) {
  double sum = 0;
  for (int rank = 0; rank < world_size; ++rank) sum += static_cast<double>(value(rank));
  return sum / world_size;
}

/// The same, where each rank has its number plus one.
inline double mean_rank_plus_one(const Communicator& communicator) {
  return mean_over_ranks(communicator.world_size(), [](int rank) { return rank + 1; });
}

}  // namespace libtrain::test
