#pragma once

#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include <tests/support/training.hpp>

namespace libtrain::test {

/// Model, dtype and optimizer of a recipe.
using Cell = std::tuple<const char*, at::ScalarType, const char*>;

/// "mlp_float64_adamw"
std::string name_of_cell(const ::testing::TestParamInfo<Cell>& cell);

/// Base of parity tests over models, dtypes and optimizers.
class ParityTest : public ::testing::TestWithParam<Cell> {
 protected:
  Recipe recipe(Regime regime) const;

  /// 5e-14 in float64, 1e-5 in float32: the worst cells were 3.3e-15 and 1.8e-6 apart.
  double bound() const;
};

/// The largest difference, relative to the largest magnitude wanted.
double deviation_of(const at::Tensor& actual, const at::Tensor& wanted);

/// Compares what ranks have trained with train_alone(), and prints how far the weights are apart:
///
///     parity mlp float64 accumulation adamw ranks 3: 2.1e-13
///
/// Expects at most `bound`, and equal bits on all ranks. Where the outcome has gradients, expects the same ones to be
/// undefined and, in float64, `bound` for them, too (in float32 the last step's show what all steps before have done to
/// the weights). `variant` is printed behind the regime. All ranks must call it.
void expect_as_alone(const Recipe& recipe, const Outcome& together, Communicator& communicator, double bound,
                     const std::string& variant = "");

/// train_together() and expect_as_alone(), on ranks.
void expect_parity(const Recipe& recipe, double bound, const TogetherOptions& options = {},
                   const std::string& variant = "");

}  // namespace libtrain::test
