// Loss scaling and clipping beside the gradient synchronizer, on ranks as threads and under mpirun.

#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/sgd.h>

#include <libtrain/optim/gradient_clipping.hpp>
#include <libtrain/optim/loss_scaler.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>

#include <tests/support/device.hpp>
#include <tests/support/models.hpp>
#include <tests/support/on_ranks.hpp>

namespace libtrain::optim {
namespace {

using test::loss_of;
using test::make_batch;
using test::make_model;
using test::on_device;
using test::on_ranks;
using test::TestBatch;
using test::TestModel;

constexpr std::int64_t kBatch = 4;
constexpr double kMaxNorm = 0.05;

TestBatch whole_batch(const TestModel& model, int world_size, int step) {
  return make_batch(model, kBatch * world_size, at::kFloat, 100 + static_cast<std::uint64_t>(step));
}

TestBatch part_of(const TestBatch& whole, int rank) {
  return {whole.inputs.narrow(0, kBatch * rank, kBatch), whole.targets.narrow(0, kBatch * rank, kBatch)};
}

torch::optim::SGD sgd_of(const TestModel& model) {
  return torch::optim::SGD{model.module->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)};
}

at::Tensor weights_of(const TestModel& model) {
  std::vector<at::Tensor> weights;
  for (const auto& parameter : model.module->parameters()) weights.push_back(parameter.detach().flatten());
  return torch::cat(weights);
}

bool same_on_all_ranks(const at::Tensor& mine, Communicator& communicator) {
  const auto of_rank_0 = mine.clone();
  communicator.broadcast(of_rank_0, 0).wait();
  return torch::equal(mine.cpu(), of_rank_0.cpu());
}

TEST(LossScalerOnRanks, OverflowOnOneRankIsSkippedByAll) {
  on_ranks([](Communicator& communicator) {
    const auto model = make_model("mlp", at::kFloat, 1);
    GradientSynchronizer synchronizer{*model.module, communicator};
    auto optimizer = sgd_of(model);
    LossScaler scaler;
    double expected_scale = 65536;
    for (int step = 0; step < 6; ++step) {
      const auto before = weights_of(model);
      auto batch = part_of(whole_batch(model, communicator.world_size(), step), communicator.rank());
      const bool overflow = step % 2 == 0;
      if (overflow && communicator.rank() == step % communicator.world_size()) {
        batch.targets = torch::full_like(batch.targets, std::numeric_limits<float>::infinity());
      }
      scaler.scale(loss_of(model, batch)).backward();
      synchronizer.wait();
      EXPECT_EQ(scaler.step(optimizer), !overflow) << "step " << step;
      scaler.update();
      synchronizer.zero_grad();
      if (overflow) expected_scale /= 2;
      EXPECT_EQ(scaler.state().scale, expected_scale);
      EXPECT_EQ(torch::equal(weights_of(model).cpu(), before.cpu()), overflow) << "step " << step;
      EXPECT_TRUE(same_on_all_ranks(weights_of(model), communicator));
    }
  });
}

// The reference: plain LibTorch on the whole batch, without scaling.
at::Tensor train_alone(int world_size) {
  const auto model = make_model("mlp", at::kFloat, 1);
  auto optimizer = sgd_of(model);
  for (int step = 0; step < 10; ++step) {
    optimizer.zero_grad();
    loss_of(model, whole_batch(model, world_size, step)).backward();
    EXPECT_GT(torch::nn::utils::clip_grad_norm_(model.module->parameters(), kMaxNorm), kMaxNorm);
    optimizer.step();
  }
  return weights_of(model);
}

TEST(LossScalerOnRanks, WaitUnscaleClipStepEqualsOneProcess) {
  on_ranks([](Communicator& communicator) {
    const auto model = make_model("mlp", at::kFloat, 1);
    GradientSynchronizer synchronizer{*model.module, communicator};
    auto optimizer = sgd_of(model);
    LossScaler scaler{LossScalerOptions{.initial_scale = 1024, .growth_interval = 2}};
    for (int step = 0; step < 10; ++step) {
      const auto batch = part_of(whole_batch(model, communicator.world_size(), step), communicator.rank());
      scaler.scale(loss_of(model, batch)).backward();
      synchronizer.wait();
      EXPECT_TRUE(scaler.unscale(optimizer));
      clip_gradients(model.module->parameters(), {.max_norm = kMaxNorm});
      EXPECT_TRUE(scaler.step(optimizer));
      scaler.update();
      synchronizer.zero_grad();
    }
    const auto mine = weights_of(model);
    const auto alone = train_alone(communicator.world_size()).cpu();
    EXPECT_LE((mine.cpu() - alone).abs().max().item<double>(), 1e-5 * alone.abs().max().item<double>());
    EXPECT_TRUE(same_on_all_ranks(mine, communicator));
  });
}

// As a ShardedOptimizer's, of which each rank has another part, and some may have none.
TEST(LossScalerOnRanks, GradientsThatDifferAreCheckedOnAllRanks) {
  on_ranks([](Communicator& communicator) {
    const auto weight = torch::ones({3}, test::device()).set_requires_grad(true);
    LossScaler scaler{LossScalerOptions{.initial_scale = 256}};
    double expected_scale = 256;
    for (int step = 0; step < 6; ++step) {
      const bool is_mine = communicator.rank() == step % communicator.world_size();
      const bool overflow = step % 2 == 0;
      weight.mutable_grad() = torch::full({3}, 2.0, test::device());
      if (overflow && is_mine) weight.grad()[1] = std::numeric_limits<float>::quiet_NaN();
      if (step == 3 && is_mine) weight.mutable_grad() = at::Tensor();
      if (step == 4 && is_mine) scaler.report_overflow();
      EXPECT_EQ(scaler.unscale({weight}, communicator), !overflow) << step;
      scaler.update();
      if (overflow) expected_scale /= 2;
      EXPECT_EQ(scaler.state().scale, expected_scale) << step;
    }
  });
}

// The norm becomes part of the update: where it differed in a bit, so would the replicas.
TEST(GradientClippingOnRanks, NormHasTheSameBitsOnAllRanks) {
  on_ranks([](Communicator& communicator) {
    const auto model = make_model("transformer", at::kFloat, 1);
    GradientSynchronizer synchronizer{*model.module, communicator};
    loss_of(model, part_of(whole_batch(model, communicator.world_size(), 0), communicator.rank())).backward();
    synchronizer.wait();
    for (const double norm : {1.0, 2.0, std::numeric_limits<double>::infinity()}) {
      const auto mine =
          torch::full({1}, double{gradient_norm(model.module->parameters(), norm)}, on_device(at::kDouble));
      EXPECT_TRUE(same_on_all_ranks(mine, communicator)) << norm;
    }
  });
}

}  // namespace
}  // namespace libtrain::optim
