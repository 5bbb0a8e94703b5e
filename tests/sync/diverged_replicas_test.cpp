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
#include <libtrain/sync/wire/power_sgd.hpp>

#include <tests/support/device.hpp>
#include <tests/support/expect_told.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/support/pair.hpp>
#include <tests/sync/sharded_training.hpp>

namespace libtrain {
namespace {

using test::expect_told;
using test::is_odd_one;
using test::on_device;
using test::on_ranks;
using test::Pair;
using test::Sharded;

// A round is told of a difference with a chance of 15 in 16.
constexpr int kEnoughRounds = 50;

struct MomentumTraining {
  MomentumTraining(Communicator& communicator, SynchronizerOptions options)
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

// On a device this is found some rounds later: DeviceRounds.
TEST(HostOnlyDivergedReplicas, AreToldToAllRanksWithTheParameter) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    const HalfPrecisionOptions half{.type = at::kBFloat16, .predivide = 3, .min_elements = 0};
    for (const bool plain : {true, false}) {
      const auto format = plain ? nullptr : std::make_shared<HalfPrecisionWireFormat>(half);
      MomentumTraining training{communicator, {.wire_format = format}};
      training.steps();
      if (is_odd_one(communicator)) scale(training.model.right, 1.5);
      expect_told(communicator, [&] { training.steps(); },
                  {"The replicas have diverged before round 5", "parameter 'right' of shape [4]",
                   text("has different values on rank ", communicator.world_size() - 1), "(the first of 1 that differ",
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
    MomentumTraining training{communicator, {}};
    training.step();
    if (is_odd_one(communicator)) scale(training.model.left.slice(0, 2, 3), 2);
    expect_told(communicator, [&] { training.steps(); }, {"parameter 'left'"});
  });
}

TEST(DivergedReplicas, AnOptimizerWithOtherOptionsIsFound) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    MomentumTraining training{communicator, {}};
    if (is_odd_one(communicator)) training.sgd.param_groups()[0].options().set_lr(0.02);
    expect_told(communicator, [&] { training.steps(); }, {"optimizers with different options", "parameter 'left'"});
  });
}

TEST(DivergedReplicas, AreLeftAloneOnRequest) {
  on_ranks([](Communicator& communicator) {
    MomentumTraining training{communicator, {.replicas = Replicas::unchecked}};
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

// Large enough for PowerSGD to send factors of it.
struct Matrix : torch::nn::Module {
  explicit Matrix(at::ScalarType type) : weight(register_parameter("weight", torch::ones({16, 16}, on_device(type)))) {}
  at::Tensor weight;
};

// Values of every dtype.
TEST(DivergedReplicas, AreToldInEveryDtypeAndWithPowerSgd) {
  struct Case {
    at::ScalarType type;
    bool power_sgd;
  };
  constexpr Case kCases[] = {
      {at::kDouble, false}, {at::kHalf, false}, {at::kBFloat16, false}, {at::kFloat, true}, {at::kDouble, true}};
  for (const auto& each : kCases) {
    on_ranks([&each](Communicator& communicator) {
      Matrix model{each.type};
      const auto format = std::make_shared<PowerSgdWireFormat>(PowerSgdOptions{.rank = 1, .start_round = 0});
      GradientSynchronizer synchronizer{model, communicator, {.wire_format = each.power_sgd ? format : nullptr}};
      torch::optim::SGD sgd{model.parameters(), torch::optim::SGDOptions(0.01)};
      const auto steps = [&] {
        for (int round = 0; round < kEnoughRounds; ++round) {
          model.weight.square().mean().mul(communicator.rank() + 1).backward();
          synchronizer.wait();
          sgd.step();
          synchronizer.zero_grad();
        }
      };
      steps();
      if (communicator.world_size() == 1) return;
      if (is_odd_one(communicator)) scale(model.weight, 1.5);
      expect_told(communicator, steps, {"parameter 'weight'"});
    });
  }
}

// Ranks that have no data left compare their replicas in join().
TEST(DivergedReplicas, AreToldToRanksThatJoin) {
  on_ranks([](Communicator& communicator) {
    MomentumTraining training{communicator, {}};
    const auto epoch = [&](int batches) {
      for (int batch = 0;; ++batch) {
        if (batch < batches) {
          training.synchronizer.set_samples(communicator.rank() + 1);
          training.model.loss(1, 2).backward();
          training.synchronizer.wait();
        } else if (!training.synchronizer.join()) {
          return;
        }
        training.sgd.step();
        training.synchronizer.zero_grad();
      }
    };
    epoch(kEnoughRounds - 10 * communicator.rank());
    if (communicator.world_size() == 1) return;
    if (is_odd_one(communicator)) scale(training.model.right, 1.5);
    const int batches = is_odd_one(communicator) ? 0 : kEnoughRounds;
    expect_told(communicator, [&] { epoch(batches); }, {"parameter 'right'"});
  });
}

// Whose weights move to other memory and are gathered behind what comes next. A step heals what one rank has changed,
// so that each round has to find it anew.
TEST(DivergedReplicas, AreToldBesideAShardedOptimizer) {
  for (const auto gather : {ParameterGather::in_step, ParameterGather::overlapped}) {
    on_ranks([gather](Communicator& communicator) {
      const bool joins = is_odd_one(communicator) && communicator.world_size() > 1;
      Sharded ranks{communicator, torch::optim::SGDOptions(0.01).momentum(0.9), {.gather = gather}};
      const auto steps = [&](double factor) {
        for (int step = 0; step < kEnoughRounds; ++step) {
          ranks.optimizer.wait_for_parameters();
          scale(ranks.network['b'], factor);
          if (joins && step % 3 == 2) {
            EXPECT_TRUE(ranks.synchronizer.join());
          } else {
            ranks.synchronizer.set_samples(communicator.rank() + 1);
            ranks.reduce(step);
          }
          ranks.optimizer.step();
          ranks.synchronizer.zero_grad();
        }
      };
      steps(1);
      if (communicator.world_size() == 1) return;
      expect_told(communicator, [&] { steps(is_odd_one(communicator) ? 1.5 : 1); }, {"parameter 'b'"});
    });
  }
}

}  // namespace
}  // namespace libtrain
