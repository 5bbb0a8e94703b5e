// ZeRO stage 1 against torch's optimizers in one process, on ranks as threads and under mpirun.

#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/log.hpp>
#include <libtrain/optim/loss_scaler.hpp>
#include <libtrain/optim/schedule.hpp>

#include <tests/support/log_sinks.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/support/pair.hpp>
#include <tests/sync/sharded_training.hpp>

namespace libtrain {
namespace {

using test::Alone;
using test::expect_all;
using test::expect_equal_weights;
using test::mean_over_ranks;
using test::on_ranks;
using test::Pair;
using test::Sharded;
using test::small_buckets;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using torch::optim::AdamWOptions;
using torch::optim::SGDOptions;

ShardedRule momentum() {
  return SGDOptions(0.1).momentum(0.9).weight_decay(0.01);
}

std::vector<ShardedRule> rules() {
  return {SGDOptions(0.1).weight_decay(0.01), SGDOptions(0.1).momentum(0.9).dampening(0.5),
          SGDOptions(0.1).momentum(0.9).weight_decay(0.01).nesterov(true),
          AdamWOptions(0.05).betas(std::make_tuple(0.8, 0.95)).weight_decay(0.1)};
}

// The buckets are planned anew after the first step.
TEST(ShardedOptimizer, TakesTheStepsOfTorchOnTheAverage) {
  for (const auto& rule : rules()) {
    on_ranks([&](Communicator& communicator) {
      Sharded ranks{communicator, rule};
      Alone alone{rule};
      for (int step = 0; step < 4; ++step) {
        ranks.take(step);
        alone.take(step, ranks.mean_factor());
        expect_equal_weights(ranks.network, alone.network, "in step " + std::to_string(step));
      }
    });
  }
}

// Rank r has r + 1 samples, and in the last round rank 0 has all there are.
TEST(ShardedOptimizer, WeighsRanksBySamplesAndStepsOnRanksThatJoin) {
  on_ranks([](Communicator& communicator) {
    Sharded ranks{communicator, momentum()};
    Alone alone{momentum()};
    double samples = 0;
    double weighted = 0;
    for (int rank = 0; rank < communicator.world_size(); ++rank) {
      samples += rank + 1;
      weighted += (rank + 1) * (rank + 1);
    }
    for (int step = 0; step < 2; ++step) {
      ranks.synchronizer.set_samples(communicator.rank() + 1);
      ranks.take(step);
      alone.take(step, weighted / samples);
      expect_equal_weights(ranks.network, alone.network, "in step " + std::to_string(step));
    }
    if (communicator.rank() == 0) {
      ranks.synchronizer.set_samples(5);
      ranks.take(2);
    } else {
      EXPECT_TRUE(ranks.synchronizer.join());
      ranks.optimizer.step();
    }
    alone.take(2, 1);
    expect_equal_weights(ranks.network, alone.network, "in the last step");
  });
}

// b is frozen in steps 2 and 3, and goes on with the momentum it had; d is frozen at first.
TEST(ShardedOptimizer, FollowsFrozenAndUnfrozenParameters) {
  for (const auto& rule : rules()) {
    on_ranks([&](Communicator& communicator) {
      Sharded ranks{communicator, rule};
      Alone alone{rule};
      for (int step = 0; step < 7; ++step) {
        const bool trains_b = step < 2 || step > 3;
        const bool trains_d = step > 0;
        ranks.network['b'].set_requires_grad(trains_b);
        ranks.network['d'].set_requires_grad(trains_d);
        ranks.take(step);
        alone.take(step, ranks.mean_factor(), std::string{"ac"} + (trains_b ? "b" : "") + (trains_d ? "d" : ""));
        expect_equal_weights(ranks.network, alone.network, "in step " + std::to_string(step));
      }
    });
  }
}

TEST(ShardedOptimizer, LeavesParametersAloneThatNoRankHasUsed) {
  on_ranks([](Communicator& communicator) {
    auto options = small_buckets();
    options.unused = UnusedParameters::allowed;
    Sharded ranks{communicator, AdamWOptions(0.05), {}, options};
    Alone alone{AdamWOptions(0.05)};
    for (int step = 0; step < 4; ++step) {
      const std::string letters = step % 2 == 0 ? "abcd" : "ad";
      ranks.take(step, letters);
      alone.take(step, ranks.mean_factor(), letters);
      expect_equal_weights(ranks.network, alone.network, "in step " + std::to_string(step));
    }
  });
}

TEST(ShardedOptimizer, ASkippedRoundChangesNothing) {
  on_ranks([](Communicator& communicator) {
    auto options = small_buckets();
    options.non_finite = NonFinite::skipped;
    Sharded ranks{communicator, AdamWOptions(0.05), {}, options};
    Alone alone{AdamWOptions(0.05)};
    const bool is_last = communicator.rank() == communicator.world_size() - 1;
    for (int step = 0; step < 4; ++step) {
      if (step == 1) {
        ranks.network.loss(step, is_last ? std::numeric_limits<double>::quiet_NaN() : 1).backward();
        EXPECT_FALSE(ranks.synchronizer.wait());
        ranks.optimizer.step();
      } else {
        ranks.take(step);
        alone.take(step, ranks.mean_factor());
      }
      expect_equal_weights(ranks.network, alone.network, "in step " + std::to_string(step));
    }
  });
}

TEST(ShardedOptimizer, GathersParametersBesideOtherWork) {
  on_ranks([](Communicator& communicator) {
    Sharded ranks{communicator, momentum(), {.gather = ParameterGather::overlapped}};
    Alone alone{momentum()};
    for (int step = 0; step < 4; ++step) {
      ranks.take(step);
      alone.take(step, ranks.mean_factor());
      ranks.optimizer.wait_for_parameters();
      expect_equal_weights(ranks.network, alone.network, "in step " + std::to_string(step));
    }
  });
}

TEST(ShardedOptimizer, EachParameterMayHaveARuleOfItsOwn) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    const auto rule_of = [](const std::string& name, ShardedRule common) {
      if (name == "left") std::get<SGDOptions>(common).weight_decay(0);
      return common;
    };
    ShardedOptimizer optimizer{model, SGDOptions(0.1).weight_decay(0.5), {.rule_of = rule_of}};
    GradientSynchronizer synchronizer{model, communicator, {.wire_format = optimizer.wire_format()}};
    model.loss(0, 0).backward();
    synchronizer.wait();
    optimizer.step();
    expect_all(model.left, 1, "left");
    expect_all(model.right, 1 - 0.1 * 0.5, "right");
  });
}

TEST(ShardedOptimizer, TakesItsLearningRateFromASchedule) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    ShardedOptimizer optimizer{model, SGDOptions(0.1)};
    GradientSynchronizer synchronizer{model, communicator, {.wire_format = optimizer.wire_format()}};
    const auto step = [&] {
      model.loss(1, 2).backward();
      synchronizer.wait();
      optimizer.step();
      synchronizer.zero_grad();
    };
    optimizer.set_learning_rate_factor(optim::step_decay({.every = 1, .factor = 0.5})(1));
    step();
    expect_all(model.left, 0.95, "left");
    optimizer.set_learning_rate(0.2);
    step();
    expect_all(model.left, 0.95 - 0.2 * 0.5, "left");
    expect_all(model.right, 0.9 - 0.4 * 0.5, "right");
    EXPECT_EQ(optimizer.learning_rates().of_parameters, (std::vector<double>{0.2, 0.2}));
    EXPECT_EQ(optimizer.learning_rates().factor, 0.5);
    optimizer.set_learning_rates({.of_parameters = {0.2, 0.4}, .factor = 0.25});
    step();
    expect_all(model.left, 0.95 - 0.2 * 0.5 - 0.2 * 0.25, "left");
    expect_all(model.right, 0.9 - 0.4 * 0.5 - 0.8 * 0.25, "right");
  });
}

// The averages are 3 and 4 in 4 elements each: their norm is 10.
TEST(ShardedOptimizer, ClipsByTheNormOfAllGradients) {
  for (const double max_norm : {1.0, 11.0}) {
    on_ranks([&](Communicator& communicator) {
      Pair model;
      ShardedOptimizer optimizer{model, SGDOptions(1)};
      GradientSynchronizer synchronizer{
          model, communicator, {.buckets = {16, 16}, .wire_format = optimizer.wire_format()}};
      const double share =
          (communicator.rank() + 1) / mean_over_ranks(communicator.world_size(), [](int rank) { return rank + 1; });
      model.loss(3 * share, 4 * share).backward();
      synchronizer.wait();
      EXPECT_NEAR(optimizer.clip_gradients(max_norm), 10, 1e-5);
      optimizer.step();
      const double scale = max_norm < 10 ? 0.1 : 1;
      expect_all(model.left, 1 - 3 * scale, "left");
      expect_all(model.right, 1 - 4 * scale, "right");
    });
  }
}

TEST(ShardedOptimizer, AllRanksLeaveOutAStepThatOverflowedInAPartOfOne) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    ShardedOptimizer optimizer{model, SGDOptions(1)};
    GradientSynchronizer synchronizer{model, communicator, {.wire_format = optimizer.wire_format()}};
    optim::LossScaler scaler{optim::LossScalerOptions{.initial_scale = 8}};
    const auto round = [&](double of_right) {
      scaler.scale(model.loss(0.25, of_right)).backward();
      synchronizer.wait();
      const bool finite = optimizer.unscale(scaler);
      if (finite) optimizer.step();
      scaler.update();
      synchronizer.zero_grad();
      return finite;
    };
    EXPECT_TRUE(round(2));
    expect_all(model.left, 0.75, "left");
    expect_all(model.right, -1, "right");
    const bool is_last = communicator.rank() == communicator.world_size() - 1;
    EXPECT_FALSE(round(is_last ? std::numeric_limits<double>::infinity() : 2));
    EXPECT_EQ(scaler.state().scale, 4.0);
    expect_all(model.left, 0.75, "left");
    expect_all(model.right, -1, "right");
    EXPECT_TRUE(round(2));
    expect_all(model.left, 0.5, "left");
    expect_all(model.right, -3, "right");
  });
}

TEST(ShardedOptimizer, ClippingGradientsThatAreNotFiniteLeavesNothingBehind) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    ShardedOptimizer optimizer{model, SGDOptions(1)};
    GradientSynchronizer synchronizer{model, communicator, {.wire_format = optimizer.wire_format()}};
    optim::LossScaler scaler{optim::LossScalerOptions{.initial_scale = 8}};
    const auto round = [&](double of_right) {
      scaler.scale(model.loss(0.25, of_right)).backward();
      synchronizer.wait();
      const bool finite = optimizer.unscale(scaler);
      optimizer.clip_gradients(100);
      if (finite) optimizer.step();
      scaler.update();
      synchronizer.zero_grad();
      return finite;
    };
    EXPECT_FALSE(round(std::numeric_limits<double>::quiet_NaN()));
    EXPECT_TRUE(round(2));
    expect_all(model.right, -1, "right");
  });
}

// Loading a module gives its parameters other memory, and saving it writes the storage of each.
TEST(ShardedOptimizer, ParametersMayMove) {
  on_ranks([](Communicator& communicator) {
    Sharded ranks{communicator, momentum()};
    Alone alone{momentum()};
    for (int step = 0; step < 4; ++step) {
      ranks.take(step);
      alone.take(step, ranks.mean_factor());
      for (const auto& weight : ranks.network.weights) {
        EXPECT_EQ(weight.storage().nbytes(), weight.nbytes());
        if (step == 1) weight.set_data(weight.detach().clone());
      }
    }
    expect_equal_weights(ranks.network, alone.network);
    EXPECT_TRUE(ranks.network['d'].is_contiguous(at::MemoryFormat::ChannelsLast));
  });
}

TEST(ShardedOptimizer, ReplicasAreEqualToTheBit) {
  on_ranks([](Communicator& communicator) {
    Sharded ranks{communicator, AdamWOptions(0.05)};
    for (int step = 0; step < 3; ++step) {
      ranks.take(step);
      for (const auto& weight : ranks.network.weights) {
        const auto mine = weight.detach().contiguous();
        const auto of_rank_0 = mine.clone();
        communicator.broadcast(of_rank_0, 0).wait();
        EXPECT_TRUE(torch::equal(mine.cpu(), of_rank_0.cpu()));
      }
    }
  });
}

// What a rank has of other ranks' shards is no average.
TEST(ShardedOptimizer, DoesNotWarnOfZerosThatAllRanksHave) {
  const test::CapturedLog log{LogLevel::warning};
  on_ranks([&log](Communicator& communicator) {
    Sharded ranks{communicator, momentum()};
    for (int step = 0; step < 6; ++step) {  // a device would warn in the fifth
      ranks.network.loss(step, 0).backward();
      EXPECT_TRUE(ranks.synchronizer.wait());
      ranks.optimizer.step();
      ranks.synchronizer.zero_grad();
    }
    communicator.barrier();
    EXPECT_THAT(log.lines(), Each(Not(HasSubstr("was zero in round"))));
    communicator.barrier();
  });
}

}  // namespace
}  // namespace libtrain
