// What one can do wrong with a sharded optimizer, and what is said about it; on ranks as threads and under mpirun.

#include <limits>
#include <string>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <libtrain/base/error.hpp>
#include <libtrain/optim/gradient_clipping.hpp>
#include <libtrain/optim/loss_scaler.hpp>

#include <tests/support/device.hpp>
#include <tests/support/expect_told.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/sync/sharded_training.hpp>

namespace libtrain {
namespace {

using test::Alone;
using test::expect_equal_weights;
using test::expect_told;
using test::is_odd_one;
using test::message_of;
using test::Network;
using test::on_device;
using test::on_ranks;
using test::Sharded;
using test::small_buckets;
using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::optim::AdamWOptions;
using torch::optim::SGDOptions;

TEST(ShardedOptimizerMisuse, WithoutASynchronizer) {
  Network network;
  ShardedOptimizer optimizer{network, SGDOptions(0.1)};
  const auto names_the_fix = HasSubstr("optimizer.wire_format()");
  EXPECT_THAT(message_of<UsageError>([&] { optimizer.step(); }), names_the_fix);
  EXPECT_THAT(message_of<UsageError>([&] { optimizer.clip_gradients(1); }), names_the_fix);
  EXPECT_THAT(message_of<UsageError>([&] { optimizer.state_dict(); }), names_the_fix);
  EXPECT_THAT(message_of<UsageError>([&] { optimizer.load_state_dict({}); }), names_the_fix);
}

TEST(ShardedOptimizerMisuse, WithTheSynchronizerOfAnotherModule) {
  on_ranks([](Communicator& communicator) {
    Network network;
    auto other = on_device(torch::nn::Linear{3, 2});
    ShardedOptimizer optimizer{*other, SGDOptions(0.1)};
    GradientSynchronizer synchronizer{network, communicator, {.wire_format = optimizer.wire_format()}};
    network.loss(0, 1).backward();
    synchronizer.wait();
    EXPECT_THAT(message_of<UsageError>([&] { optimizer.step(); }), AllOf(HasSubstr("'d'"), HasSubstr("same module")));
  });
}

TEST(ShardedOptimizerMisuse, StepBeforeWait) {
  on_ranks([](Communicator& communicator) {
    Sharded ranks{communicator, SGDOptions(0.1)};
    Alone alone{SGDOptions(0.1)};
    for (int step = 0; step < 2; ++step) {
      ranks.network.loss(step, ranks.factor()).backward();
      EXPECT_THAT(message_of<UsageError>([&] { ranks.optimizer.step(); }), HasSubstr("wait()"));
      EXPECT_TRUE(ranks.synchronizer.wait());
      ranks.optimizer.step();
      ranks.synchronizer.zero_grad();
      alone.take(step, ranks.mean_factor());
    }
    expect_equal_weights(ranks.network, alone.network);
  });
}

// No check would find that all but one part are this rank's own. A rank that has all gradients steps rightly.
// On a device this is found one step later: DeviceRounds.
TEST(HostOnlyShardedOptimizerMisuse, RoundsThatAddUp) {
  on_ranks([](Communicator& communicator) {
    auto options = small_buckets();
    options.replan = false;
    Sharded ranks{communicator, SGDOptions(0.1), {}, options};
    Alone alone{SGDOptions(0.1)};
    ranks.reduce(0);
    ranks.reduce(1);
    if (communicator.world_size() > 1) {
      EXPECT_THAT(message_of<UsageError>([&] { ranks.optimizer.step(); }), HasSubstr("zero_grad()"));
    }
    ranks.synchronizer.zero_grad();
    ranks.take(2);
    alone.take(2, ranks.mean_factor());
    expect_equal_weights(ranks.network, alone.network);
  });
}

TEST(HostOnlyShardedOptimizerMisuse, RoundsThatAddUpWeighted) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    auto options = small_buckets();
    options.replan = false;
    Sharded ranks{communicator, SGDOptions(0.1), {}, options};
    for (int step = 0; step < 2; ++step) {
      ranks.synchronizer.set_samples(3 * communicator.rank() + 1);
      ranks.reduce(step);
    }
    EXPECT_THAT(message_of<UsageError>([&] { ranks.optimizer.step(); }), HasSubstr("zero_grad()"));
  });
}

struct TwoLarge : torch::nn::Module {
  at::Tensor left = register_parameter("left", torch::ones({5000}, test::device()));
  at::Tensor right = register_parameter("right", torch::ones({5000}, test::device()));
};

// Gradients move to the buckets of the new plan, which has the order in which they arrive: left, then right.
TEST(HostOnlyShardedOptimizerMisuse, RoundsThatAddUpAcrossANewPlan) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    TwoLarge model;
    ShardedOptimizer optimizer{model, SGDOptions(0.1)};
    GradientSynchronizer synchronizer{model, communicator, {.wire_format = optimizer.wire_format()}};
    const auto first_plan = synchronizer.buckets();
    for (int round = 0; round < 2; ++round) {
      const auto of_right = model.right.sum();
      (of_right + model.left.sum()).backward();
      synchronizer.wait();
    }
    EXPECT_NE(synchronizer.buckets(), first_plan);
    EXPECT_THAT(message_of<UsageError>([&] { optimizer.step(); }), HasSubstr("zero_grad()"));
  });
}

// On a device this is found one step later: DeviceRounds.
TEST(HostOnlyShardedOptimizerMisuse, WhatReadsGradientsAsAWhole) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    Sharded ranks{communicator, SGDOptions(0.1)};
    ranks.reduce(0);
    optim::clip_gradients(ranks.network.weights, {.max_norm = 1e-3});
    EXPECT_THAT(message_of<UsageError>([&] { ranks.optimizer.step(); }),
                AllOf(HasSubstr("optim::clip_gradients"), HasSubstr("unscale() of ShardedOptimizer")));
    ranks.synchronizer.zero_grad();

    ranks.reduce(1);
    optim::LossScaler scaler;
    scaler.unscale(ranks.network.weights);
    EXPECT_THAT(message_of<UsageError>([&] { ranks.optimizer.step(); }), HasSubstr("unscale() of ShardedOptimizer"));
  });
}

TEST(ShardedOptimizerMisuse, OtherGradientsThanTheAverages) {
  on_ranks([](Communicator& communicator) {
    Sharded ranks{communicator, SGDOptions(0.1)};
    ranks.reduce(0);
    ranks.network['b'].mutable_grad() = ranks.network['b'].grad().clone();
    EXPECT_THAT(message_of<UsageError>([&] { ranks.optimizer.step(); }), AllOf(HasSubstr("'b'"), HasSubstr("wait()")));
  });
}

TEST(ShardedOptimizerMisuse, ARoundBeforeItsParametersHaveCome) {
  on_ranks([](Communicator& communicator) {
    Sharded ranks{communicator, SGDOptions(0.1), {.gather = ParameterGather::overlapped}};
    Alone alone{SGDOptions(0.1)};
    ranks.take(0);
    communicator.barrier();  // so that the forward below does not race with what it must not overtake
    ranks.reduce(1);
    EXPECT_THAT(message_of<UsageError>([&] { ranks.optimizer.step(); }), HasSubstr("wait_for_parameters()"));
    ranks.synchronizer.zero_grad();
    ranks.take(2);
    ranks.optimizer.wait_for_parameters();
    alone.take(0, ranks.mean_factor());
    alone.take(2, ranks.mean_factor());
    expect_equal_weights(ranks.network, alone.network);
  });
}

TEST(ShardedOptimizerMisuse, RanksWithOtherRules) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    Network network;
    const double rate = is_odd_one(communicator) ? 0.25 : 0.5;
    for (const bool by_name : {false, true}) {
      ShardedOptimizerOptions options;
      if (by_name) {
        options.rule_of = [rate](const std::string& name, ShardedRule common) {
          if (name == "b") std::get<SGDOptions>(common).lr(rate);
          return common;
        };
      }
      ShardedOptimizer optimizer{network, SGDOptions(by_name ? 1 : rate), options};
      expect_told(communicator,
                  [&] { GradientSynchronizer{network, communicator, {.wire_format = optimizer.wire_format()}}; },
                  {"sharded, SGD with lr"});
    }
  });
}

TEST(ShardedOptimizerMisuse, ParametersOfOtherTypes) {
  on_ranks([](Communicator& communicator) {
    auto model = on_device(torch::nn::Linear{4, 4});
    model->to(at::kBFloat16);
    ShardedOptimizer optimizer{*model, SGDOptions(0.1)};
    EXPECT_THAT(message_of<UsageError>(
                    [&] { GradientSynchronizer{*model, communicator, {.wire_format = optimizer.wire_format()}}; }),
                AllOf(HasSubstr("BFloat16"), HasSubstr("float32 and float64")));
  });
}

TEST(ShardedOptimizerMisuse, OptionsOutOfRange) {
  Network network;
  const auto message = [&](const ShardedRule& rule) {
    return message_of<UsageError>([&] { ShardedOptimizer{network, rule}; });
  };
  EXPECT_THAT(message(SGDOptions(-1)), HasSubstr("SGDOptions::lr is -1"));
  EXPECT_THAT(message(SGDOptions(0.1).nesterov(true)), HasSubstr("nesterov"));
  EXPECT_THAT(message(AdamWOptions(0.1).amsgrad(true)), HasSubstr("amsgrad"));
  EXPECT_THAT(message(AdamWOptions(0.1).betas(std::make_tuple(0.9, 1.0))), HasSubstr("0.9 and 1"));
  EXPECT_THAT(message(AdamWOptions(0.1).eps(std::numeric_limits<double>::quiet_NaN())), HasSubstr("AdamWOptions::eps"));

  const auto mixed = [](const std::string& name, const ShardedRule& common) -> ShardedRule {
    if (name == "b") return AdamWOptions(0.1);
    return common;
  };
  EXPECT_THAT(message_of<UsageError>([&] { ShardedOptimizer{network, SGDOptions(0.1), {.rule_of = mixed}}; }),
              AllOf(HasSubstr("'b'"), HasSubstr("another kind")));

  ShardedOptimizer optimizer{network, SGDOptions(0.1)};
  EXPECT_THAT(message_of<UsageError>([&] { optimizer.clip_gradients(0); }), HasSubstr("max_norm of 0"));
  EXPECT_THAT(message_of<UsageError>([&] { optimizer.set_learning_rate(-0.5); }), HasSubstr("-0.5"));
  EXPECT_THAT(message_of<UsageError>([&] { optimizer.set_learning_rate_factor(-2); }), HasSubstr("-2"));
  EXPECT_THAT(message_of<UsageError>([&] { optimizer.set_learning_rates({{0.1}}); }), HasSubstr("of 1 parameters"));
  EXPECT_THAT(message_of<UsageError>([&] {
                auto rates = optimizer.learning_rates();
                rates.of_parameters.front() = -3;
                optimizer.set_learning_rates(rates);
              }),
              HasSubstr("-3"));
}

}  // namespace
}  // namespace libtrain
