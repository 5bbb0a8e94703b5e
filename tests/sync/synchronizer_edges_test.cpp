// Options that meet each other, and what users do between backward() and wait(), on ranks as threads and under mpirun.

#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <libtrain/base/error.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>
#include <libtrain/sync/wire/detail/plain.hpp>
#include <libtrain/sync/wire/half_precision.hpp>
#include <libtrain/sync/wire/power_sgd.hpp>

#include <tests/support/device.hpp>
#include <tests/support/expect_told.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/support/pair.hpp>

namespace libtrain {
namespace {

using test::device;
using test::expect_all;
using test::expect_told_of_one;
using test::is_odd_one;
using test::kTenSeconds;
using test::message_of;
using test::on_device;
using test::on_fresh_ranks;
using test::on_ranks;
using test::Pair;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(SynchronizerEdges, AnOptimizersZeroGradBeforeWaitIsNoticed) {
  for (const bool set_to_none : {true, false}) {
    on_fresh_ranks(1, kTenSeconds, [&](Communicator& communicator) {
      Pair model;
      GradientSynchronizer synchronizer{model, communicator};
      torch::optim::SGD optimizer{model.parameters(), torch::optim::SGDOptions(0.1)};
      model.loss(1, 1).backward();
      optimizer.zero_grad(set_to_none);
      EXPECT_THAT(message_of<UsageError>([&] { synchronizer.wait(); }), HasSubstr("between backward() and wait()"));
    });
  }
}

// On a device this is found some rounds later: DeviceRounds.
TEST(HostOnlySynchronizerEdges, AStepWithoutWaitIsNoticedWithoutOverlap) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.overlap = Overlap::none}};
    torch::optim::SGD optimizer{model.parameters(), torch::optim::SGDOptions(0.1)};
    model.loss(1, 1).backward();
    optimizer.step();
    EXPECT_THAT(message_of<UsageError>([&] { model.loss(1, 1).backward(); }), HasSubstr("Call wait()"));
  });
}

TEST(HostOnlySynchronizerEdges, AStepUnderNoSyncIsNoticedByZeroGrad) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator};
    torch::optim::SGD optimizer{model.parameters(), torch::optim::SGDOptions(0.1)};
    {
      const auto guard = synchronizer.no_sync();
      model.loss(1, 1).backward();
    }
    optimizer.step();
    EXPECT_THAT(message_of<UsageError>([&] { synchronizer.zero_grad(); }), HasSubstr("stepped"));
  });
}

using Round = std::function<void(const Pair&, GradientSynchronizer&)>;

void backward_and_wait(const Pair& model, GradientSynchronizer& synchronizer) {
  model.loss(1, 1).backward();
  synchronizer.wait();
}

// All ranks are told of the odd one's round, which does not go with that of the others.
void expect_told_of_odd_round(int minimum_ranks, const Round& of_odd_one, const Round& of_others,
                              const std::vector<std::string>& fragments) {
  on_fresh_ranks(minimum_ranks, kTenSeconds, [&](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator};
    const auto round = [&] { (is_odd_one(communicator) ? of_odd_one : of_others)(model, synchronizer); };
    expect_told_of_one(communicator, round, fragments);
  });
}

TEST(SynchronizerEdges, WaitUnderAGuardOnOneRankIsToldToAll) {
  const auto under_a_guard = [](const Pair& model, GradientSynchronizer& synchronizer) {
    const auto guard = synchronizer.no_sync();
    backward_and_wait(model, synchronizer);
  };
  expect_told_of_odd_round(1, under_a_guard, backward_and_wait, {"no_sync()"});
}

TEST(SynchronizerEdges, FindUnusedMayFindAllOrBeCalledAgain) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.unused = UnusedParameters::allowed}};
    const auto apart = torch::ones({1}, device()).requires_grad_();
    synchronizer.find_unused({apart.sum()});
    EXPECT_TRUE(synchronizer.wait());
    EXPECT_FALSE(model.left.grad().defined());
    // The first batch is given up.
    synchronizer.find_unused({model.left.sum()});
    const auto loss = model.loss(2, 3);
    synchronizer.find_unused({loss});
    loss.backward();
    EXPECT_TRUE(synchronizer.wait());
    expect_all(model.right.grad(), 3, "right");
  });
}

// Passes nothing on.
struct Blocked : torch::autograd::Function<Blocked> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& input) { return input.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list) {
    return {at::Tensor()};
  }
};

TEST(SynchronizerEdges, AnUndefinedGradientIsNone) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.unused = UnusedParameters::allowed}};
    (Blocked::apply(model.left).sum() + 2 * model.right.sum()).backward();
    EXPECT_TRUE(synchronizer.wait());
    EXPECT_FALSE(model.left.grad().defined());
    expect_all(model.right.grad(), 2, "right");
  });
}

TEST(SynchronizerEdges, AConvertedModuleIsRefused) {
  on_fresh_ranks(1, kTenSeconds, [](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator};
    model.to(at::kDouble);
    const auto round = [&] {
      model.loss(1, 1).backward();
      synchronizer.wait();
    };
    EXPECT_THAT(message_of<UsageError>(round), HasSubstr("converted"));
  });
}

// To a dtype that buckets cannot hold, or to one that they can. The first round's arrivals have made a new plan, which
// is adopted before the mistake is noticed.
TEST(SynchronizerEdges, AConversionOnOneRankIsToldToAll) {
  for (const auto type : {at::kComplexFloat, at::kDouble}) {
    for (const auto alone_bytes : {BucketLimits::kNever, std::size_t{1}}) {
      on_fresh_ranks(1, kTenSeconds, [&](Communicator& communicator) {
        Pair model;
        GradientSynchronizer synchronizer{model, communicator, {.buckets = {.alone_bytes = alone_bytes}}};
        model.left.sum().backward();
        model.right.sum().backward();
        synchronizer.wait();
        if (is_odd_one(communicator)) model.left.set_data(model.left.detach().to(type));
        const auto round = [&] {
          synchronizer.zero_grad();
          if (!is_odd_one(communicator)) model.left.sum().backward();
          model.right.sum().backward();
          synchronizer.wait();
        };
        expect_told_of_one(communicator, round, {"'left' was converted to another dtype or device"});
      });
    }
  }
}

// torch::load() exchanges the parameters' memory.
TEST(SynchronizerEdges, AModuleThatIsLoadedAfterwardsIsRefusedForWhatItIs) {
  on_fresh_ranks(1, kTenSeconds, [](Communicator& communicator) {
    const auto model = std::make_shared<Pair>();
    std::stringstream saved;
    torch::save(std::static_pointer_cast<torch::nn::Module>(model), saved);
    GradientSynchronizer synchronizer{*model, communicator};
    auto target = std::static_pointer_cast<torch::nn::Module>(model);
    torch::load(target, saved);
    const auto round = [&] {
      model->loss(1, 1).backward();
      synchronizer.wait();
    };
    EXPECT_THAT(message_of<UsageError>(round),
                AllOf(HasSubstr("was replaced (as torch::load() does) after the synchronizer was created"),
                      HasSubstr("Load the module first"), Not(HasSubstr("dtype"))));
  });
}

// A device has no tune().
TEST(HostOnlySynchronizerEdges, TuningKeepsFrozenAndUnfrozenLayersRight) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.buckets = {16, 16}}};
    const auto round = [&](bool with_left) {
      synchronizer.zero_grad();
      (with_left ? model.loss(1, 2) : 2 * model.right.sum()).backward();
      EXPECT_TRUE(synchronizer.wait());
      expect_all(model.right.grad(), 2, "right");
      if (with_left) expect_all(model.left.grad(), 1, "left");
    };
    round(true);
    model.left.set_requires_grad(false);
    synchronizer.tune();
    round(false);
    round(false);
    model.left.set_requires_grad(true);
    synchronizer.tune();
    round(true);
    round(true);
  });
}

TEST(HostOnlySynchronizerEdges, TuningSeesAnUnfrozenLayerThatBackwardReachesFirst) {
  on_ranks([](Communicator& communicator) {
    for (const bool is_left : {true, false}) {
      Pair model;
      GradientSynchronizer synchronizer{model, communicator, {.buckets = {16, 16}}};
      torch::optim::SGD optimizer{model.parameters(), torch::optim::SGDOptions(0.1)};
      auto& layer = is_left ? model.left : model.right;
      layer.set_requires_grad(false);
      (is_left ? 2 * model.right.sum() : model.left.sum()).backward();
      EXPECT_TRUE(synchronizer.wait());
      layer.set_requires_grad(true);
      synchronizer.tune();
      for (int round = 0; round < 2; ++round) {
        optimizer.zero_grad();
        model.loss(1, 2).backward();
        EXPECT_TRUE(synchronizer.wait());
        expect_all(model.left.grad(), 1, "left");
        expect_all(model.right.grad(), 2, "right");
      }
    }
  });
}

TEST(SynchronizerEdges, AMistakeInSetSamplesIsToldToAll) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator};
    const bool is_last = communicator.rank() + 1 == communicator.world_size();
    EXPECT_THAT(message_of<UsageError>([&] { synchronizer.set_samples(is_last ? -1 : 1); }),
                HasSubstr("set_samples() was given -1"));
    synchronizer.set_samples(1);
    model.loss(1, 2).backward();
    EXPECT_TRUE(synchronizer.wait());
    expect_all(model.left.grad(), 1, "left");
  });
}

TEST(SynchronizerEdges, UnfreezingWorksWithAWireFormat) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    model.left.set_requires_grad(false);
    GradientSynchronizer synchronizer{
        model, communicator, {.wire_format = std::make_shared<detail::PlainWireFormat>()}};
    (2 * model.right.sum()).backward();
    EXPECT_TRUE(synchronizer.wait());
    synchronizer.zero_grad();
    model.left.set_requires_grad(true);
    for (int round = 0; round < 2; ++round) {
      model.loss(1, 2).backward();
      EXPECT_TRUE(synchronizer.wait());
      expect_all(model.left.grad(), 1, "left");
      synchronizer.zero_grad();
    }
  });
}

TEST(SynchronizerEdges, NanInAnUnfrozenLayerIsFoundInItsFirstRound) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    model.left.set_requires_grad(false);
    GradientSynchronizer synchronizer{model, communicator, {.non_finite = NonFinite::fatal}};
    (2 * model.right.sum()).backward();
    EXPECT_TRUE(synchronizer.wait());
    synchronizer.zero_grad();
    model.left.set_requires_grad(true);
    const auto round = [&] {
      model.loss(is_odd_one(communicator) ? kNan : 1, 2).backward();
      synchronizer.wait();
    };
    expect_told_of_one(communicator, round, {"'left'", "NaN", "round 2"});
  });
}

TEST(SynchronizerEdges, JoiningWithAccumulatedGradientsIsRefused) {
  const auto accumulate_and_join = [](const Pair& model, GradientSynchronizer& synchronizer) {
    {
      const auto guard = synchronizer.no_sync();
      model.loss(1, 1).backward();
    }
    synchronizer.join();
  };
  const auto weight_and_wait = [](const Pair& model, GradientSynchronizer& synchronizer) {
    synchronizer.set_samples(4);
    backward_and_wait(model, synchronizer);
  };
  expect_told_of_odd_round(2, accumulate_and_join, weight_and_wait, {"join()", "no_sync()"});
}

TEST(SynchronizerEdges, RanksWithoutSamplesGiveZeroEvenAlone) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.non_finite = NonFinite::fatal}};
    EXPECT_EQ(synchronizer.set_samples(0), 0);
    model.loss(kNan, kNan).backward();
    EXPECT_TRUE(synchronizer.wait());
    expect_all(model.left.grad(), 0, "left");
  });
}

TEST(SynchronizerEdges, OptionsThatDifferAreRefusedByAll) {
  on_fresh_ranks(2, kTenSeconds, [](Communicator& communicator) {
    Pair model;
    const auto with = [&](const SynchronizerOptions& options) {
      return [&, options] { const GradientSynchronizer synchronizer(model, communicator, options); };
    };
    const bool odd = is_odd_one(communicator);
    // One plan now, and others after re-planning.
    expect_told_of_one(communicator, with({.buckets = {odd ? 1u << 20 : 2u << 20, 1 << 20}}), {"limits"});
    const HalfPrecisionOptions half{.predivide = odd ? 2.0 : 4.0};
    expect_told_of_one(communicator, with({.wire_format = std::make_shared<HalfPrecisionWireFormat>(half)}),
                       {"predivide"});
  });
}

TEST(SynchronizerEdges, AModuleThatOneRankCannotUseEndsAll) {
  on_fresh_ranks(2, kTenSeconds, [](Communicator& communicator) {
    Pair model;
    SynchronizerOptions options;
    options.plan = {{"left", "right"}};
    if (is_odd_one(communicator)) options.plan = {{"left"}};
    const auto construct = [&] { const GradientSynchronizer synchronizer(model, communicator, options); };
    expect_told_of_one(communicator, construct, {"'right'", "once"});
  });
}

// One loss through two modules, whose gradients come in another order on another rank: buckets of equal size.
TEST(SynchronizerEdges, BucketsOfTwoSynchronizersDoNotMix) {
  on_fresh_ranks(2, kTenSeconds, [](Communicator& communicator) {
    auto first = on_device(torch::nn::Linear{4, 4});
    auto second = on_device(torch::nn::Linear{4, 4});
    GradientSynchronizer of_first{*first, communicator, {.replan = false}};
    GradientSynchronizer of_second{*second, communicator, {.replan = false}};
    const auto x = torch::ones({1, 4}, device());
    const auto round = [&] {
      auto& earlier = is_odd_one(communicator) ? first : second;
      auto& later = is_odd_one(communicator) ? second : first;
      earlier->forward(x).sum().backward();
      later->forward(x).sum().backward();
      of_first.wait();
      of_second.wait();
    };
    EXPECT_THAT(message_of<CommunicationError>(round), HasSubstr("different collectives"));
  });
}

// Their gradients would be averaged place by place.
TEST(SynchronizerEdges, RefusesWeightsThatRanksLayOutDifferently) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    auto model = on_device(torch::nn::Conv2d{torch::nn::Conv2dOptions(3, 4, 2)});
    if (communicator.rank() == 1) model->weight.set_data(model->weight.contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_THAT(message_of<UsageError>([&] { GradientSynchronizer{*model, communicator}; }),
                HasSubstr("strides [12, 1, 6, 3]"));
  });
}

TEST(SynchronizerEdges, RecordsSayWhichBucketTheyWereFor) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.buckets = {16, 16}, .replan = false}};
    model.loss(1, 1).backward();
    synchronizer.wait();
    expect_all(model.left.grad(), 1, "left");  // on a device, the collectives have ended now
    const auto records = communicator.recent_collectives();
    ASSERT_GE(records.size(), 2u);
    std::uint64_t previous = 0;
    for (const auto& record : records) {
      if (!device().is_cpu()) continue;  // collectives on a device have other numbers, and are looked at now and then
      EXPECT_EQ(record.state, CollectiveRecord::State::done) << record.what;
      EXPECT_GE(record.sequence, previous);
      previous = record.sequence;
    }
    EXPECT_THAT(records.back().what, HasSubstr("for the status of a round"));
    const auto& last_bucket = records[records.size() - 2].what;
    EXPECT_THAT(last_bucket, HasSubstr("all_reduce"));
    EXPECT_THAT(last_bucket, HasSubstr("for bucket"));
    EXPECT_THAT(last_bucket, HasSubstr("'"));
  });
}

TEST(SynchronizerEdges, TrainingWithPowerSgdFindsTheMinimum) {
  on_ranks([](Communicator& communicator) {
    torch::manual_seed(1);
    auto model = on_device(torch::nn::Linear{torch::nn::LinearOptions(32, 24).bias(false)});
    GradientSynchronizer synchronizer{
        *model,
        communicator,
        {.wire_format = std::make_shared<PowerSgdWireFormat>(PowerSgdOptions{.rank = 2, .start_round = 2})}};
    torch::optim::SGD optimizer{model->parameters(), torch::optim::SGDOptions(0.05)};
    // The ranks' targets differ; the minimum is at their mean.
    const auto target = torch::full({24, 32}, 1.0 + communicator.rank(), device());
    double distance = 0;
    for (int step = 0; step < 200; ++step) {
      synchronizer.zero_grad();
      (model->weight - target).pow(2).sum().backward();
      ASSERT_TRUE(synchronizer.wait());
      optimizer.step();
      const double mean = 1.0 + (communicator.world_size() - 1) / 2.0;
      distance = (model->weight - mean).abs().max().item<double>();
    }
    EXPECT_LT(distance, 0.02);
  });
}

}  // namespace
}  // namespace libtrain
