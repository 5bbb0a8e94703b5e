#include <libtrain/optim/fused_adamw.hpp>

#include <memory>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <libtrain/base/error.hpp>

#include <tests/optim/parameters.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::optim {
namespace {

using test::expect_same_training;
using test::make_odd_parameters;
using test::make_parameters;
using test::message_of;
using test::Parameters;
using ::testing::HasSubstr;
using torch::optim::AdamW;
using torch::optim::AdamWOptions;
using torch::optim::AdamWParamState;
using torch::optim::OptimizerParamGroup;

AdamWOptions all_adamw_options() {
  return AdamWOptions(0.01).betas(std::make_tuple(0.8, 0.95)).eps(1e-6).weight_decay(0.1);
}

std::vector<AdamWOptions> adamw_cases() {
  return {AdamWOptions(), AdamWOptions(0.01).weight_decay(0), all_adamw_options(), all_adamw_options().amsgrad(true)};
}

TEST(FusedAdamw, FollowsTorchsInFloat32) {
  for (const auto& options : adamw_cases()) {
    expect_same_training<FusedAdamW, AdamW>(make_parameters, options, at::kFloat, 1e-6);
    expect_same_training<FusedAdamW, AdamW>(make_odd_parameters, options, at::kFloat, 1e-6);
  }
}

TEST(FusedAdamw, FollowsTorchsInFloat64) {
  for (const auto& options : adamw_cases()) {
    expect_same_training<FusedAdamW, AdamW>(make_parameters, options, at::kDouble, 1e-12);
    expect_same_training<FusedAdamW, AdamW>(make_odd_parameters, options, at::kDouble, 1e-12);
  }
}

TEST(FusedAdamw, FollowsTorchsInHalfPrecision) {
  expect_same_training<FusedAdamW, AdamW>(make_parameters, all_adamw_options(), at::kBFloat16, 3e-2);
}

TEST(FusedAdamw, TakesGroupsWithOptionsOfTheirOwn) {
  const auto groups_of = [](const Parameters& parameters) {
    std::vector<OptimizerParamGroup> groups;
    groups.emplace_back(Parameters(parameters.begin(), parameters.begin() + 2),
                        std::make_unique<AdamWOptions>(AdamWOptions(0.05).weight_decay(0)));
    groups.emplace_back(Parameters(parameters.begin() + 2, parameters.end()));
    return groups;
  };
  const auto parameters = make_parameters(at::kDouble);
  const auto expected = make_parameters(at::kDouble);
  FusedAdamW ours(groups_of(parameters), all_adamw_options());
  AdamW theirs(groups_of(expected), all_adamw_options());
  test::train(ours, parameters, 0, 20);
  test::train(theirs, expected, 0, 20);
  test::expect_close(parameters, expected, 1e-12);
}

TEST(FusedAdamw, LeavesParametersWithoutGradientAlone) {
  const auto parameters = make_parameters(at::kFloat);
  FusedAdamW adamw(parameters, all_adamw_options());
  test::train(adamw, parameters, 0, 2);
  EXPECT_TRUE(torch::equal(parameters.back(), make_parameters(at::kFloat).back()));
  EXPECT_EQ(adamw.state().count(parameters.back().unsafeGetTensorImpl()), 0u);
}

// Bias corrections count the parameter's own steps.
TEST(FusedAdamw, CountsTheStepsOfEachParameter) {
  const auto parameters = make_parameters(at::kDouble);
  const auto expected = make_parameters(at::kDouble);
  FusedAdamW ours(parameters, all_adamw_options());
  AdamW theirs(expected, all_adamw_options());
  for (int step = 0; step < 6; ++step) {
    for (const auto& side : {parameters, expected}) {
      test::set_gradients(side, step);
      if (step < 3) side.front().mutable_grad() = at::Tensor();
    }
    ours.step();
    theirs.step();
  }
  test::expect_close(parameters, expected, 1e-12);
}

TEST(FusedAdamw, KeepsItsStateInTheParametersLayout) {
  const auto parameters = make_parameters(at::kFloat);
  FusedAdamW adamw(parameters, all_adamw_options());
  test::train(adamw, parameters, 0, 2);
  auto& state = static_cast<AdamWParamState&>(*adamw.state()[parameters[2].unsafeGetTensorImpl()]);
  EXPECT_TRUE(state.exp_avg().is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(state.exp_avg_sq().is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_EQ(state.step(), 2);
}

TEST(FusedAdamw, GivesTheSameBitsOnAnyNumberOfThreads) {
  test::expect_same_on_threads<FusedAdamW>(all_adamw_options());
}

TEST(FusedAdamw, ResumesFromAFileAsIfItHadNotStopped) {
  test::expect_resumes<FusedAdamW, FusedAdamW>(all_adamw_options(), AdamWOptions(7), 0);
  test::expect_resumes<FusedAdamW, FusedAdamW>(all_adamw_options().amsgrad(true), AdamWOptions(7), 0);
}

TEST(FusedAdamw, ExchangesFilesWithTorchs) {
  test::expect_resumes<AdamW, FusedAdamW>(all_adamw_options(), AdamWOptions(7), 1e-6);
  test::expect_resumes<FusedAdamW, AdamW>(all_adamw_options(), AdamWOptions(7), 1e-6);
}

TEST(FusedAdamw, EvaluatesItsClosureWithGradients) {
  const auto weight = torch::ones({3}, torch::requires_grad());
  FusedAdamW adamw(Parameters{weight}, AdamWOptions(0.25).eps(0).weight_decay(0));
  const torch::NoGradGuard no_grad;
  const auto loss = adamw.step([&] {
    auto result = weight.pow(2).sum();
    result.backward();
    return result;
  });
  EXPECT_EQ(loss.item<float>(), 3.0f);
  // The first step is as long as the rate.
  EXPECT_NEAR(weight[0].item<float>(), 0.75f, 1e-6);
}

TEST(FusedAdamw, LetsNoOlderGraphMixWeights) {
  test::expect_older_graphs_refused<FusedAdamW>(all_adamw_options());
}

TEST(FusedAdamw, RefusesWhatItCannotUse) {
  const auto weight = torch::ones({3}, torch::requires_grad());
  FusedAdamW adamw(Parameters{weight}, all_adamw_options());
  weight.mutable_grad() = torch::ones({3}).to_sparse();
  EXPECT_THAT(message_of<UsageError>([&] { adamw.step(); }), HasSubstr("FusedAdamW takes dense gradients"));

  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(Parameters{weight}, std::make_unique<torch::optim::SGDOptions>(0.1));
  FusedAdamW misled(groups, all_adamw_options());
  EXPECT_THAT(message_of<UsageError>([&] { misled.step(); }), HasSubstr("options of another optimizer"));
}

}  // namespace
}  // namespace libtrain::optim
