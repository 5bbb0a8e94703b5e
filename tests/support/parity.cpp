#include <tests/support/parity.hpp>

#include <cstdio>

#include <tests/support/on_ranks.hpp>

namespace libtrain::test {

namespace {

std::string name_of(at::ScalarType type) {
  return type == at::kDouble ? "float64" : "float32";
}

void expect_equal_replicas(const Outcome& outcome, Communicator& communicator) {
  const auto of_rank_0 = outcome.weights.clone();
  communicator.broadcast(of_rank_0, 0).wait();
  EXPECT_TRUE(torch::equal(outcome.weights.cpu(), of_rank_0.cpu())) << "the weights of rank " << communicator.rank();
  for (const auto& undefined : communicator.all_gather_bytes(outcome.undefined)) {
    EXPECT_EQ(undefined, outcome.undefined) << "without a gradient on rank " << communicator.rank();
  }
}

}  // namespace

std::string name_of_cell(const ::testing::TestParamInfo<Cell>& cell) {
  const auto& [model, type, optimizer] = cell.param;
  return std::string{model} + "_" + name_of(type) + "_" + optimizer;
}

Recipe ParityTest::recipe(Regime regime) const {
  const auto& [model, type, optimizer] = GetParam();
  return {.model = model, .type = type, .optimizer = optimizer, .regime = regime};
}

double ParityTest::bound() const {
  return std::get<at::ScalarType>(GetParam()) == at::kDouble ? 5e-14 : 1e-5;
}

double deviation_of(const at::Tensor& actual, const at::Tensor& wanted) {
  const auto expected = wanted.cpu();
  return ((actual.cpu() - expected).abs().max() / expected.abs().max()).item<double>();
}

void expect_as_alone(const Recipe& recipe, const Outcome& together, Communicator& communicator, double bound,
                     const std::string& variant) {
  expect_equal_replicas(together, communicator);
  if (communicator.rank() != 0) return;
  const auto alone = train_alone(recipe, communicator.world_size());
  const double deviation = deviation_of(together.weights, alone.weights);
  std::printf("parity %s %s %s%s %s ranks %d: %.1e\n", recipe.model.c_str(), name_of(recipe.type).c_str(),
              to_string(recipe.regime).c_str(), variant.c_str(), recipe.optimizer.c_str(), communicator.world_size(),
              deviation);
  EXPECT_LE(deviation, bound) << "weights";
  if (!together.gradients.defined()) return;
  EXPECT_EQ(together.undefined, alone.undefined);
  if (recipe.type == at::kDouble) {
    EXPECT_LE(deviation_of(together.gradients, alone.gradients), bound) << "gradients";
  }
}

void expect_parity(const Recipe& recipe, double bound, const TogetherOptions& options, const std::string& variant) {
  on_ranks([&](Communicator& communicator) {
    expect_as_alone(recipe, train_together(recipe, communicator, options), communicator, bound, variant);
  });
}

}  // namespace libtrain::test
