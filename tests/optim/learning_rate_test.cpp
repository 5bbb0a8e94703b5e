#include <libtrain/optim/learning_rate.hpp>

#include <limits>
#include <sstream>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::optim {
namespace {

using test::message_of;
using ::testing::HasSubstr;

at::Tensor parameter() {
  return torch::ones({2}, torch::requires_grad());
}

TEST(LearningRate, EachGroupKeepsItsOwnBase) {
  const auto group = [](double rate) {
    return torch::optim::OptimizerParamGroup({parameter()}, std::make_unique<torch::optim::SGDOptions>(rate));
  };
  torch::optim::SGD sgd{{group(0.5), group(0.25)}, torch::optim::SGDOptions(1.0)};
  LearningRate rate{sgd, {0.5, 0.25}, step_decay({.every = 2, .factor = 0.5})};
  // In any order, and as often as one likes: the factor is of the base, not of the last rate.
  for (const auto& [step, first, second] : {std::tuple{4, 0.125, 0.0625}, std::tuple{0, 0.5, 0.25},
                                            std::tuple{2, 0.25, 0.125}, std::tuple{2, 0.25, 0.125}}) {
    rate.set(step);
    EXPECT_EQ(sgd.param_groups()[0].options().get_lr(), first);
    EXPECT_EQ(sgd.param_groups()[1].options().get_lr(), second);
    EXPECT_EQ(rate.of_first_group(), first);
  }
}

TEST(LearningRate, IsWhatTheNextStepTakes) {
  const auto weights = parameter();
  torch::optim::SGD sgd{{weights}, torch::optim::SGDOptions(1.0)};
  LearningRate rate{sgd, 1.0, polynomial_decay({.steps = 4})};
  weights.mutable_grad() = torch::ones({2});
  for (int step = 0; step < 4; ++step) {
    rate.set(step);
    sgd.step();
  }
  // 1 - (1 + 0.75 + 0.5 + 0.25)
  EXPECT_EQ(weights[0].item<float>(), -1.5f);
}

TEST(LearningRate, KnowsOtherOptimizers) {
  torch::optim::AdamW adam{{parameter()}, torch::optim::AdamWOptions(0.5)};
  LearningRate rate{adam, 0.5, step_decay({.every = 1, .factor = 0.5})};
  rate.set(1);
  EXPECT_EQ(adam.param_groups()[0].options().get_lr(), 0.25);
}

// The trap: an optimizer that is saved in the middle of a run holds a rate to which the schedule has been applied.
TEST(LearningRate, AResumedRunGoesOnWithTheRatesOfOneThatWasNot) {
  const auto schedule = polynomial_decay({.steps = 4});
  torch::optim::SGD sgd{{parameter()}, torch::optim::SGDOptions(0.5)};
  LearningRate{sgd, 0.5, schedule}.set(2);
  std::stringstream checkpoint;
  torch::save(sgd, checkpoint);

  torch::optim::SGD resumed{{parameter()}, torch::optim::SGDOptions(0.5)};
  torch::load(resumed, checkpoint);
  ASSERT_EQ(resumed.param_groups()[0].options().get_lr(), 0.25);
  LearningRate common{resumed, 0.5, schedule};
  LearningRate of_groups{resumed, std::vector<double>{0.5}, schedule};
  for (auto* rate : {&common, &of_groups}) {
    for (const auto& [step, expected] : {std::pair{2, 0.25}, std::pair{3, 0.125}, std::pair{4, 0.0}}) {
      rate->set(step);
      EXPECT_EQ(rate->of_first_group(), expected);
    }
  }
}

TEST(LearningRate, OneBaseServesGroupsThatAreAddedLater) {
  torch::optim::SGD sgd{{parameter()}, torch::optim::SGDOptions(0.5)};
  LearningRate rate{sgd, 0.5, step_decay({.every = 1, .factor = 0.5})};
  rate.set(1);
  sgd.add_param_group(torch::optim::OptimizerParamGroup{{parameter()}});
  ASSERT_EQ(sgd.param_groups()[1].options().get_lr(), 0.5);
  rate.set(1);
  for (const auto& group : sgd.param_groups()) EXPECT_EQ(group.options().get_lr(), 0.25);
}

TEST(LearningRate, GroupsAndBasesMustMatch) {
  torch::optim::SGD sgd{{parameter()}, torch::optim::SGDOptions(0.5)};
  LearningRate rate{sgd, std::vector<double>{0.5}, constant()};
  sgd.add_param_group(torch::optim::OptimizerParamGroup{{parameter()}});
  const auto too_few =
      HasSubstr("given 1 base rates, but the optimizer has 2 parameter groups. Give a base rate for each");
  EXPECT_THAT(message_of<UsageError>([&] { rate.set(0); }), too_few);
  EXPECT_THAT(message_of<UsageError>([&] { LearningRate(sgd, std::vector<double>{0.5}, constant()); }), too_few);
  EXPECT_THROW(LearningRate(sgd, {0.5, 0.5, 0.5}, constant()), UsageError);
  // One base for groups that were made with different rates would make them equal.
  sgd.param_groups()[1].options().set_lr(0.25);
  EXPECT_THAT(message_of<UsageError>([&] { LearningRate(sgd, 0.5, constant()); }),
              HasSubstr("one base rate for the optimizer's 2 parameter groups, whose rates are 0.5, 0.25"));
}

TEST(LearningRate, RatesThatAreNoneAreNamedAndNotSet) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  torch::optim::SGD sgd{{parameter()}, torch::optim::SGDOptions(0.5)};
  EXPECT_THROW((LearningRate{sgd, 0.5, Schedule{}}), UsageError);
  for (const double base : {kNan, kInfinity, -1.0}) {
    EXPECT_THAT(message_of<UsageError>([&] { LearningRate(sgd, base, constant()); }),
                HasSubstr(text("The base rate of LearningRate is ", base)));
    EXPECT_THROW(LearningRate(sgd, std::vector<double>{base}, constant()), UsageError);
  }
  for (const double factor : {kNan, kInfinity, -1.0}) {
    LearningRate rate{sgd, 0.5, [factor](std::int64_t) { return factor; }};
    EXPECT_THAT(message_of<UsageError>([&] { rate.set(7); }), HasSubstr(text("factor of step 7 is ", factor)));
  }
  // Each of the two is finite.
  LearningRate rate{sgd, 1e200, [](std::int64_t) { return 1e200; }};
  EXPECT_THAT(message_of<UsageError>([&] { rate.set(7); }), HasSubstr("of step 7, 1e+200 times 1e+200, is not finite"));
  EXPECT_EQ(sgd.param_groups()[0].options().get_lr(), 0.5);
}

}  // namespace
}  // namespace libtrain::optim
