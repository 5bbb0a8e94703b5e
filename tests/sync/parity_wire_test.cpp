// Gradients that travel in bfloat16 must still train nearly as one process does.

#include <memory>
#include <string>

#include <gtest/gtest.h>

#include <libtrain/sync/wire/half_precision.hpp>

#include <tests/support/on_ranks.hpp>
#include <tests/support/parity.hpp>

namespace libtrain {
namespace {

using test::expect_parity;
using test::on_ranks;
using test::Regime;
using test::TogetherOptions;
using test::train_together;

// Three times as far as the worst cell of each model has been from one process.
double bound_of(const std::string& model) {
  if (model == "batch_norm") return 4e-4;
  if (model == "mlp") return 3e-3;
  if (model == "transformer") return 4e-3;
  return 1e-2;
}

// No bucket of these models is too small for it.
TogetherOptions over_bfloat16() {
  TogetherOptions options;
  options.make_wire_format = [] {
    return std::make_shared<HalfPrecisionWireFormat>(HalfPrecisionOptions{.type = at::kBFloat16, .min_elements = 1});
  };
  return options;
}

class ParityWire : public test::ParityTest {};

TEST_P(ParityWire, OfPlainSteps) {
  expect_parity(recipe(Regime::plain), bound_of(std::get<0>(GetParam())), over_bfloat16(), "_bfloat16");
}

TEST_P(ParityWire, OfAccumulatedMicroSteps) {
  expect_parity(recipe(Regime::accumulation), bound_of(std::get<0>(GetParam())), over_bfloat16(), "_bfloat16");
}

TEST_P(ParityWire, OfBatchesOfDifferentSizes) {
  expect_parity(recipe(Regime::uneven_batches), bound_of(std::get<0>(GetParam())), over_bfloat16(), "_bfloat16");
}

// Otherwise the tests above would show nothing.
TEST_P(ParityWire, RoundsGradients) {
  on_ranks([&](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    const auto rounded = train_together(recipe(Regime::plain), communicator, over_bfloat16());
    const auto exact = train_together(recipe(Regime::plain), communicator);
    EXPECT_GT(test::deviation_of(rounded.weights, exact.weights), 1e-5);
  });
}

INSTANTIATE_TEST_SUITE_P(Models, ParityWire,
                         ::testing::Combine(::testing::Values("mlp", "conv", "transformer", "tied", "batch_norm"),
                                            ::testing::Values(at::kFloat), ::testing::Values("sgd", "adamw")),
                         test::name_of_cell);

}  // namespace
}  // namespace libtrain
