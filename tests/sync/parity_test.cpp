// N ranks with batch B must train as one process with batch N*B, on ranks as threads and under mpirun.

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <libtrain/sync/gradient_synchronizer.hpp>

#include <tests/support/models.hpp>
#include <tests/support/on_ranks.hpp>

namespace libtrain {
namespace {

using testing::make_batch;
using testing::make_model;
using testing::on_ranks;

constexpr int kSteps = 10;
constexpr std::int64_t kBatch = 4;

/// Weights and last gradients, end to end.
struct Outcome {
  at::Tensor weights;
  at::Tensor gradients;
};

Outcome outcome_of(const torch::nn::Module& module) {
  std::vector<at::Tensor> weights;
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : module.parameters()) {
    weights.push_back(parameter.detach().flatten());
    gradients.push_back(parameter.grad().flatten());
  }
  return {torch::cat(weights), torch::cat(gradients)};
}

torch::optim::SGD make_optimizer(const torch::nn::Module& module) {
  return torch::optim::SGD{module.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9)};
}

at::Tensor loss_of(testing::TestModel& model, const testing::TestBatch& batch) {
  return torch::mse_loss(model.forward(batch.inputs), batch.targets);
}

// The reference: plain LibTorch.
Outcome train_alone(const std::string& kind, at::ScalarType type, int world_size) {
  auto model = make_model(kind, type, 1);
  auto optimizer = make_optimizer(*model.module);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    loss_of(model, make_batch(model, kBatch * world_size, type, 100 + static_cast<std::uint64_t>(step))).backward();
    optimizer.step();
  }
  return outcome_of(*model.module);
}

enum class ZeroGrad { of_synchronizer, of_optimizer_to_none, of_optimizer_to_zero };

Outcome train_together(const std::string& kind, at::ScalarType type, Communicator& communicator,
                       ZeroGrad zero_grad = ZeroGrad::of_synchronizer, BucketLimits limits = {2000, 300}) {
  // Every rank starts from weights of its own: rank 0's must win.
  auto model = make_model(kind, type, 1 + static_cast<std::uint64_t>(communicator.rank()));
  GradientSynchronizer synchronizer{*model.module, communicator, {.buckets = limits}};
  auto optimizer = make_optimizer(*model.module);
  for (int step = 0; step < kSteps; ++step) {
    switch (zero_grad) {
      case ZeroGrad::of_synchronizer:
        synchronizer.zero_grad();
        break;
      case ZeroGrad::of_optimizer_to_none:
        optimizer.zero_grad(true);
        break;
      case ZeroGrad::of_optimizer_to_zero:
        optimizer.zero_grad(false);
        break;
    }
    const auto whole =
        make_batch(model, kBatch * communicator.world_size(), type, 100 + static_cast<std::uint64_t>(step));
    const auto mine = kBatch * communicator.rank();
    loss_of(model, {whole.inputs.narrow(0, mine, kBatch), whole.targets.narrow(0, mine, kBatch)}).backward();
    synchronizer.wait();
    optimizer.step();
  }
  return outcome_of(*model.module);
}

void expect_close(const at::Tensor& actual, const at::Tensor& wanted, double relative, const std::string& what) {
  const double scale = wanted.abs().max().item<double>();
  const double difference = (actual - wanted).abs().max().item<double>();
  EXPECT_LE(difference, relative * scale) << what;
  EXPECT_GT(scale, 0) << what;
}

class Parity : public ::testing::TestWithParam<const char*> {};

void expect_parity(const std::string& kind, at::ScalarType type, double relative) {
  on_ranks([&](Communicator& communicator) {
    const auto together = train_together(kind, type, communicator);
    const auto alone = train_alone(kind, type, communicator.world_size());
    expect_close(together.weights, alone.weights, relative, "weights");
    expect_close(together.gradients, alone.gradients, relative, "gradients");
  });
}

TEST_P(Parity, InFloat64) {
  expect_parity(GetParam(), at::kDouble, 1e-7);
}

TEST_P(Parity, InFloat32) {
  expect_parity(GetParam(), at::kFloat, 1e-5);
}

TEST_P(Parity, RunsAreBitEqual) {
  on_ranks([](Communicator& communicator) {
    const auto first = train_together(GetParam(), at::kFloat, communicator);
    const auto second = train_together(GetParam(), at::kFloat, communicator);
    EXPECT_TRUE(torch::equal(first.weights, second.weights));
    EXPECT_TRUE(torch::equal(first.gradients, second.gradients));
  });
}

TEST_P(Parity, ReplicasAreBitEqual) {
  on_ranks([](Communicator& communicator) {
    const auto mine = train_together(GetParam(), at::kFloat, communicator).weights;
    const auto of_rank_0 = mine.clone();
    communicator.broadcast(of_rank_0, 0).wait();
    EXPECT_TRUE(torch::equal(mine, of_rank_0));
  });
}

TEST_P(Parity, DoesNotDependOnHowGradientsAreZeroed) {
  on_ranks([](Communicator& communicator) {
    const auto own = train_together(GetParam(), at::kFloat, communicator).weights;
    for (const auto zero_grad : {ZeroGrad::of_optimizer_to_none, ZeroGrad::of_optimizer_to_zero}) {
      EXPECT_TRUE(torch::equal(own, train_together(GetParam(), at::kFloat, communicator, zero_grad).weights));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Models, Parity, ::testing::Values("mlp", "conv", "transformer"),
                         [](const auto& test) { return std::string{test.param}; });

}  // namespace
}  // namespace libtrain
