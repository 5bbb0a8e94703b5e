// N ranks with batch B must train as one process with batch N*B, on ranks as threads and under mpirun.

#include <gtest/gtest.h>

#include <tests/support/parity.hpp>

namespace libtrain {
namespace {

using test::expect_parity;
using test::Regime;

class Parity : public test::ParityTest {};

TEST_P(Parity, OfPlainSteps) {
  expect_parity(recipe(Regime::plain), bound());
}

TEST_P(Parity, OfAccumulatedMicroSteps) {
  expect_parity(recipe(Regime::accumulation), bound());
}

// Both sides leave the gradient undefined where no rank takes the branch, so that no optimizer decays or moves it.
TEST_P(Parity, WithABranchThatOneRankLeavesOut) {
  expect_parity(recipe(Regime::unused), bound());
}

TEST_P(Parity, WithUnusedParametersFoundInTheGraph) {
  expect_parity(recipe(Regime::unused_found), bound());
}

TEST_P(Parity, WithUnusedParametersDeclared) {
  expect_parity(recipe(Regime::unused_declared), bound());
}

INSTANTIATE_TEST_SUITE_P(Models, Parity,
                         ::testing::Combine(::testing::Values("mlp", "conv", "transformer", "tied", "batch_norm"),
                                            ::testing::Values(at::kDouble, at::kFloat),
                                            ::testing::Values("sgd", "adamw")),
                         test::name_of_cell);

}  // namespace
}  // namespace libtrain
