#include <libtrain/optim/learning_rate.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::optim {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

at::Tensor parameter() {
  return torch::ones({2}, torch::requires_grad());
}

TEST(LearningRate, EachGroupKeepsItsOwnBase) {
  const auto group = [](double rate) {
    return torch::optim::OptimizerParamGroup({parameter()}, std::make_unique<torch::optim::SGDOptions>(rate));
  };
  torch::optim::SGD sgd{{group(0.5), group(0.25)}, torch::optim::SGDOptions(1.0)};
  LearningRate rate{sgd, step_decay({.every = 2, .factor = 0.5})};
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
  LearningRate rate{sgd, polynomial_decay({.steps = 4})};
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
  LearningRate rate{adam, step_decay({.every = 1, .factor = 0.5})};
  rate.set(1);
  EXPECT_EQ(adam.param_groups()[0].options().get_lr(), 0.25);
}

TEST(LearningRate, MisuseIsNamed) {
  torch::optim::SGD sgd{{parameter()}, torch::optim::SGDOptions(0.5)};
  EXPECT_THROW((LearningRate{sgd, Schedule{}}), UsageError);
  LearningRate negative{sgd, [](std::int64_t) { return -1.0; }};
  EXPECT_THAT(message_of<UsageError>([&] { negative.set(7); }), HasSubstr("gave -1 for step 7"));
  LearningRate rate{sgd, constant()};
  sgd.add_param_group(torch::optim::OptimizerParamGroup{{parameter()}});
  EXPECT_THAT(message_of<UsageError>([&] { rate.set(0); }), HasSubstr("has 2 parameter groups and had 1"));
}

}  // namespace
}  // namespace libtrain::optim
