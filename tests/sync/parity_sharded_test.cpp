// N ranks that share the optimizer's state must train as one process with a whole one, on ranks as threads and under
// mpirun.

#include <cstdint>
#include <optional>

#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <libtrain/sync/gradient_synchronizer.hpp>
#include <libtrain/sync/sharded_optimizer.hpp>
#include <libtrain/sync/sync_batch_norm.hpp>

#include <tests/support/on_ranks.hpp>
#include <tests/support/parity.hpp>

namespace libtrain {
namespace {

using test::batch_of_rank;
using test::flat_weights;
using test::loss_of;
using test::make_model;
using test::micro_steps_of;
using test::on_ranks;
using test::Outcome;
using test::Recipe;
using test::Regime;
using test::steps_of;

// The optimizers of make_optimizer().
ShardedRule rule_of(const Recipe& recipe) {
  if (recipe.optimizer == "sgd") return torch::optim::SGDOptions(0.03).momentum(0.9);
  return torch::optim::AdamWOptions(0.01).eps(1e-3);
}

void expect_same_bits(const at::Tensor& weights, Communicator& communicator, int step) {
  const auto of_rank_0 = weights.clone();
  communicator.broadcast(of_rank_0, 0).wait();
  EXPECT_TRUE(torch::equal(weights.cpu(), of_rank_0.cpu())) << "rank " << communicator.rank() << ", step " << step;
}

Outcome train_sharded(const Recipe& recipe, Communicator& communicator, ParameterGather gather) {
  // Every rank starts from weights of its own: rank 0's must win.
  const auto model = make_model(recipe, 1 + static_cast<std::uint64_t>(communicator.rank()));
  replace_batch_norms(*model.module, communicator);
  ShardedOptimizer optimizer{*model.module, rule_of(recipe), {.gather = gather}};
  GradientSynchronizer synchronizer{
      *model.module,
      communicator,
      {.buckets = {.bucket_bytes = 2000, .first_bucket_bytes = 300}, .wire_format = optimizer.wire_format()}};
  const int micro_steps = micro_steps_of(recipe.regime);
  for (int step = 0; step < steps_of(recipe, communicator.world_size()); ++step) {
    for (int micro_step = 0; micro_step < micro_steps; ++micro_step) {
      std::optional<GradientSynchronizer::NoSync> guard;
      if (micro_step + 1 < micro_steps) guard.emplace(synchronizer.no_sync());
      const auto batch = batch_of_rank(recipe, model, step, micro_step, communicator.rank(), communicator.world_size());
      (loss_of(model, batch) / micro_steps).backward();
    }
    EXPECT_TRUE(synchronizer.wait());
    optimizer.step();
    synchronizer.zero_grad();
    optimizer.wait_for_parameters();
    expect_same_bits(flat_weights(*model.module), communicator, step);
  }
  return {.weights = flat_weights(*model.module)};
}

class ParitySharded : public test::ParityTest {
 protected:
  void expect_parity(Regime regime, ParameterGather gather) const {
    on_ranks([&](Communicator& communicator) {
      const auto together = train_sharded(recipe(regime), communicator, gather);
      test::expect_as_alone(recipe(regime), together, communicator, bound(), "_sharded");
    });
  }
};

TEST_P(ParitySharded, OfPlainSteps) {
  expect_parity(Regime::plain, ParameterGather::in_step);
}

TEST_P(ParitySharded, OfAccumulatedMicroSteps) {
  expect_parity(Regime::accumulation, ParameterGather::overlapped);
}

INSTANTIATE_TEST_SUITE_P(Models, ParitySharded,
                         ::testing::Combine(::testing::Values("mlp", "conv", "transformer", "tied", "batch_norm"),
                                            ::testing::Values(at::kDouble, at::kFloat),
                                            ::testing::Values("sgd", "adamw")),
                         test::name_of_cell);

}  // namespace
}  // namespace libtrain
