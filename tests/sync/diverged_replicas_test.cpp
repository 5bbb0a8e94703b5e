// Ranks whose weights have become different while they train, on ranks as threads and under mpirun.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim/sgd.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/sync/broadcast.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>
#include <libtrain/sync/wire/half_precision.hpp>

#include <tests/support/expect_told.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/support/pair.hpp>

namespace libtrain {
namespace {

using testing::expect_told;
using testing::is_odd_one;
using testing::on_ranks;
using testing::Pair;

// A round is told of a difference with a chance of 15 in 16.
constexpr int kEnoughRounds = 50;

struct Training {
  Training(Communicator& communicator, SynchronizerOptions options)
      : synchronizer(model, communicator, std::move(options)) {}

  void step() {
    model.loss(1, 2).backward();
    synchronizer.wait();
    sgd.step();
    synchronizer.zero_grad();
  }

  void steps() {
    for (int round = 0; round < kEnoughRounds; ++round) step();
  }

  Pair model;
  GradientSynchronizer synchronizer;
  torch::optim::SGD sgd{model.parameters(), torch::optim::SGDOptions(0.01).momentum(0.9)};
};

void scale(const at::Tensor& tensor, double factor) {
  const torch::NoGradGuard no_grad;
  tensor.mul_(factor);
}

TEST(DivergedReplicas, AreToldToAllRanksWithTheParameter) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    const HalfPrecisionOptions half{.type = at::kBFloat16, .predivide = 3, .smallest = 0};
    for (const bool plain : {true, false}) {
      const auto format = plain ? nullptr : std::make_shared<HalfPrecisionWireFormat>(half);
      Training training{communicator, {.wire_format = format}};
      training.steps();
      if (is_odd_one(communicator)) scale(training.model.right, 1.5);
      expect_told(communicator, [&] { training.steps(); },
                  {"The replicas have diverged before round 5", "parameter 'right' of shape [4]",
                   text("is not on rank ", communicator.world_size() - 1), "(the first of 1 that differ",
                   "Replicas::unchecked"});
      // The round is over, and what is wrong can be put right.
      broadcast_tensors(training.model.parameters(), communicator);
      training.synchronizer.zero_grad();
      training.steps();
    }
  });
}

TEST(DivergedReplicas, OneElementIsEnough) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    Training training{communicator, {}};
    training.step();
    if (is_odd_one(communicator)) scale(training.model.left.slice(0, 2, 3), 2);
    expect_told(communicator, [&] { training.steps(); }, {"parameter 'left'"});
  });
}

TEST(DivergedReplicas, AnOptimizerWithOtherOptionsIsFound) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    Training training{communicator, {}};
    if (is_odd_one(communicator)) training.sgd.param_groups()[0].options().set_lr(0.02);
    expect_told(communicator, [&] { training.steps(); }, {"optimizers with different options", "parameter 'left'"});
  });
}

TEST(DivergedReplicas, AreLeftAloneOnRequest) {
  on_ranks([](Communicator& communicator) {
    Training training{communicator, {.replicas = Replicas::unchecked}};
    if (is_odd_one(communicator)) scale(training.model.left, 2);
    training.steps();
  });
}

// Its gradient is not synchronised, and its value is not compared.
TEST(DivergedReplicas, FrozenParametersMayDiffer) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    model.left.set_requires_grad(false);
    GradientSynchronizer synchronizer{model, communicator};
    if (is_odd_one(communicator)) scale(model.left, 2);
    for (int round = 0; round < kEnoughRounds; ++round) {
      model.loss(1, 2).backward();
      synchronizer.wait();
      synchronizer.zero_grad();
    }
  });
}

// A rank that uses nothing in a round has not seen its backward() begin.
TEST(DivergedReplicas, RanksWithoutBackwardAreCompared) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    torch::optim::SGD sgd{model.parameters(), torch::optim::SGDOptions(0.01)};
    GradientSynchronizer synchronizer{model, communicator, {.unused = UnusedParameters::allowed}};
    for (int round = 0; round < kEnoughRounds; ++round) {
      if (!is_odd_one(communicator) || communicator.world_size() == 1) model.loss(1, 2).backward();
      synchronizer.wait();
      sgd.step();
      synchronizer.zero_grad();
    }
  });
}

}  // namespace
}  // namespace libtrain
