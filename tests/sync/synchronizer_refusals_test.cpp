// Modules, gradients, plans and arguments that a synchronizer refuses, on ranks as threads and under mpirun.

#include <chrono>
#include <functional>
#include <type_traits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn.h>

#include <libtrain/base/error.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>

#include <tests/support/device.hpp>
#include <tests/support/expect_told.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/support/pair.hpp>

namespace libtrain {
namespace {

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

using Plan = std::vector<std::vector<std::string>>;

TEST(SynchronizerRefusals, ParametersWithoutGradientsOnDifferentRanks) {
  on_fresh_ranks(2, kTenSeconds, [](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator};
    const auto loss = [&] {
      if (communicator.rank() == 0) return model.right.sum();
      return is_odd_one(communicator) ? model.left.sum() : model.loss(1, 1);
    };
    const auto round = [&] {
      loss().backward();
      synchronizer.wait();
    };
    expect_told_of_one(communicator, round,
                       {"rank 0: 1 of 2 parameters ('left')", "'right'", "UnusedParameters::allowed"});
  });
}

TEST(SynchronizerRefusals, ParametersWithoutGradientsInALaterRound) {
  on_fresh_ranks(1, kTenSeconds, [](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.buckets = {16, 16}}};
    for (int round = 0; round < 2; ++round) {
      model.loss(1, 1).backward();
      EXPECT_TRUE(synchronizer.wait());
      synchronizer.zero_grad();
    }
    const auto round = [&] {
      (is_odd_one(communicator) ? model.right.sum() : model.loss(1, 1)).backward();
      synchronizer.wait();
    };
    expect_told_of_one(communicator, round, {"'left'", "set_requires_grad(false)", "UnusedParameters::allowed"});
  });
}

TEST(SynchronizerRefusals, UnusedParametersThatWereNotAllowed) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator};
    const auto loss = model.loss(1, 1);
    EXPECT_THAT(message_of<UsageError>([&] { synchronizer.find_unused({loss}); }),
                AllOf(HasSubstr("find_unused()"), HasSubstr("UnusedParameters::allowed")));
    EXPECT_THAT(message_of<UsageError>([&] { synchronizer.declare_unused({"left"}); }),
                AllOf(HasSubstr("declare_unused()"), HasSubstr("UnusedParameters::allowed")));
    loss.backward();
    EXPECT_TRUE(synchronizer.wait());
  });
}

TEST(SynchronizerRefusals, UnusedParametersThatDoNotExist) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.unused = UnusedParameters::allowed}};
    EXPECT_THAT(message_of<UsageError>([&] { synchronizer.declare_unused({"left", "middle"}); }),
                AllOf(HasSubstr("'middle'"), HasSubstr("named_parameters()")));
    // What is refused changes nothing: `left` may have its gradient.
    model.loss(3, 1).backward();
    EXPECT_TRUE(synchronizer.wait());
    expect_all(model.left.grad(), 3, "left");
  });
}

TEST(SynchronizerRefusals, UnusedParametersThatAreUsed) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.unused = UnusedParameters::allowed}};
    synchronizer.declare_unused({"left"});
    EXPECT_THAT(message_of<UsageError>([&] { model.loss(1, 1).backward(); }),
                AllOf(HasSubstr("'left'"), HasSubstr("declare_unused()")));
  });
}

TEST(SynchronizerRefusals, UnusedParametersThatBelongToAnotherLoss) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.unused = UnusedParameters::allowed}};
    synchronizer.find_unused({model.right.sum()});
    EXPECT_THAT(message_of<UsageError>([&] { model.loss(1, 1).backward(); }),
                AllOf(HasSubstr("'left'"), HasSubstr("find_unused()")));
  });
}

TEST(SynchronizerRefusals, FewerThanNoSamples) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator};
    EXPECT_THAT(message_of<UsageError>([&] { synchronizer.set_samples(-3); }),
                AllOf(HasSubstr("set_samples()"), HasSubstr("-3")));
    model.loss(1, 1).backward();
    EXPECT_TRUE(synchronizer.wait());
  });
}

TEST(SynchronizerRefusals, SamplesAfterBackward) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator};
    model.loss(1, 1).backward();
    EXPECT_THAT(message_of<UsageError>([&] { synchronizer.set_samples(4); }),
                AllOf(HasSubstr("set_samples()"), HasSubstr("before the round's backward()")));
  });
}

// Ranks that call different collectives hear so from the communicator.
void expect_mismatch(const std::function<void(GradientSynchronizer&)>& call_of_one) {
  on_fresh_ranks(2, kTenSeconds, [&](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator};
    const auto round = [&] {
      if (is_odd_one(communicator)) call_of_one(synchronizer);
      model.loss(1, 1).backward();
      synchronizer.wait();
    };
    EXPECT_THAT(message_of<CommunicationError>(round), HasSubstr("different collectives"));
  });
}

TEST(SynchronizerRefusals, SamplesOfSomeRanksOnly) {
  expect_mismatch([](GradientSynchronizer& synchronizer) { synchronizer.set_samples(4); });
}

TEST(SynchronizerRefusals, JoiningRanksThatDoNotTellTheirSamples) {
  expect_mismatch([](GradientSynchronizer& synchronizer) { synchronizer.join(); });
}

// Tests have a device without sparse tensors.
TEST(HostOnlySynchronizerRefusals, SparseGradientsOfOneRank) {
  on_fresh_ranks(1, kTenSeconds, [](Communicator& communicator) {
    torch::nn::Embedding model{torch::nn::EmbeddingOptions(10, 3).sparse(is_odd_one(communicator))};
    GradientSynchronizer synchronizer{*model, communicator};
    const auto round = [&] {
      model->forward(torch::tensor({1, 2})).sum().backward();
      synchronizer.wait();
    };
    expect_told_of_one(communicator, round, {"'weight'", "sparse"});
  });
}

TEST(SynchronizerRefusals, DoubleBackwardOnOneRank) {
  on_fresh_ranks(1, kTenSeconds, [](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator};
    const auto round = [&] {
      const auto loss = model.left.pow(2).sum() + model.right.pow(2).sum();
      loss.backward({}, is_odd_one(communicator), is_odd_one(communicator));
      synchronizer.wait();
    };
    expect_told_of_one(communicator, round, {"create_graph"});
    // Such a gradient refers to its parameter, and the parameter to it.
    for (auto& parameter : model.parameters()) parameter.mutable_grad().reset();
  });
}

void expect_refused_plan(const Plan& plan, const std::vector<std::string>& fragments) {
  on_ranks([&](Communicator& communicator) {
    Pair model;
    model.register_parameter("precise", torch::ones({2}, on_device(at::kDouble)));
    const auto message =
        message_of<UsageError>([&] { const GradientSynchronizer synchronizer(model, communicator, {.plan = plan}); });
    for (const auto& fragment : fragments) EXPECT_THAT(message, HasSubstr(fragment));
  });
}

TEST(SynchronizerRefusals, PlansThatMissAParameter) {
  expect_refused_plan({{"left"}, {"precise"}}, {"plan", "'right'", "once"});
}

TEST(SynchronizerRefusals, PlansThatRepeatAParameter) {
  expect_refused_plan({{"left", "right"}, {"precise"}, {"left"}}, {"plan", "'left'", "once"});
}

TEST(SynchronizerRefusals, PlansWithAnUnknownName) {
  expect_refused_plan({{"left", "right"}, {"precise"}, {"middle"}}, {"'middle'", "named_parameters()"});
}

TEST(SynchronizerRefusals, PlansThatMixDtypesInABucket) {
  expect_refused_plan({{"left", "right", "precise"}}, {"plan", "'left'", "'precise'", "dtype"});
}

// Buckets of equal size would be averaged with each other's.
TEST(SynchronizerRefusals, PlansThatDifferBetweenRanks) {
  on_fresh_ranks(2, kTenSeconds, [](Communicator& communicator) {
    Pair model;
    const Plan plan = is_odd_one(communicator) ? Plan{{"left"}, {"right"}} : Plan{{"right"}, {"left"}};
    const auto construct = [&] { const GradientSynchronizer synchronizer(model, communicator, {.plan = plan}); };
    expect_told_of_one(communicator, construct, {"plan", "'left'", "'right'"});
  });
}

// Their collectives would come in another order than those of a SyncBatchNorm.
TEST(SynchronizerRefusals, OverlapsThatDifferBetweenRanks) {
  on_fresh_ranks(2, kTenSeconds, [](Communicator& communicator) {
    Pair model;
    const auto overlap = is_odd_one(communicator) ? Overlap::none : Overlap::backward;
    const auto construct = [&] { const GradientSynchronizer synchronizer(model, communicator, {.overlap = overlap}); };
    expect_told_of_one(communicator, construct, {"policies"});
  });
}

TEST(SynchronizerRefusals, ASecondSynchronizerOfTheSameParameters) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    {
      const GradientSynchronizer first{model, communicator};
      EXPECT_THAT(message_of<UsageError>([&] { const GradientSynchronizer second(model, communicator); }),
                  HasSubstr("another GradientSynchronizer"));
    }
    GradientSynchronizer third{model, communicator};
    model.loss(5, 1).backward();
    EXPECT_TRUE(third.wait());
    expect_all(model.left.grad(), 5, "left");
  });
}

TEST(SynchronizerRefusals, TuningBeforeTheFirstRound) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator};
    EXPECT_THAT(message_of<UsageError>([&] { synchronizer.tune(); }), AllOf(HasSubstr("tune()"), HasSubstr("round")));
  });
}

TEST(SynchronizerRefusals, ScriptModulesHaveNoWayIn) {
  // A torch::jit::Module is no torch::nn::Module, and none of LibTorch's modules wraps one.
  EXPECT_FALSE((std::is_constructible_v<GradientSynchronizer, torch::jit::Module&, Communicator&>));
}

}  // namespace
}  // namespace libtrain
