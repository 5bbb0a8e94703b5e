// Gradients that are rounded on their way must still train nearly as one process does.

#include <memory>
#include <string>

#include <gtest/gtest.h>

#include <libtrain/base/text.hpp>
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

struct Format {
  const char* name;
  std::shared_ptr<WireFormat> (*make)();
  double (*bound_of)(const std::string& model);  // three times the largest difference that the test has printed
};

const Format kFormats[] = {
    // No bucket of these models is too small for it.
    {"bfloat16",
     []() -> std::shared_ptr<WireFormat> {
       return std::make_shared<HalfPrecisionWireFormat>(HalfPrecisionOptions{.type = at::kBFloat16, .min_elements = 1});
     },
     [](const std::string& model) {
       if (model == "batch_norm") return 4e-4;
       if (model == "mlp") return 3e-3;
       if (model == "transformer") return 4e-3;
       return 1e-2;
     }},
};

TogetherOptions over(const Format& format) {
  TogetherOptions options;
  options.make_wire_format = format.make;
  return options;
}

class ParityWire : public test::ParityTest {
 protected:
  void expect_near_parity(Regime regime) const {
    for (const auto& format : kFormats) {
      expect_parity(recipe(regime), format.bound_of(std::get<0>(GetParam())), over(format), text("_", format.name));
    }
  }
};

TEST_P(ParityWire, OfPlainSteps) {
  expect_near_parity(Regime::plain);
}

TEST_P(ParityWire, OfAccumulatedMicroSteps) {
  expect_near_parity(Regime::accumulation);
}

TEST_P(ParityWire, OfBatchesOfDifferentSizes) {
  expect_near_parity(Regime::uneven_batches);
}

// Otherwise the tests above would show nothing.
TEST_P(ParityWire, RoundsGradients) {
  on_ranks([&](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    const auto exact = train_together(recipe(Regime::plain), communicator);
    for (const auto& format : kFormats) {
      const auto rounded = train_together(recipe(Regime::plain), communicator, over(format));
      EXPECT_GT(test::deviation_of(rounded.weights, exact.weights), 1e-5) << format.name;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Models, ParityWire,
                         ::testing::Combine(::testing::Values("mlp", "conv", "transformer", "tied", "batch_norm"),
                                            ::testing::Values(at::kFloat), ::testing::Values("sgd", "adamw")),
                         test::name_of_cell);

}  // namespace
}  // namespace libtrain
