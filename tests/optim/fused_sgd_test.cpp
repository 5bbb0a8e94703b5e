#include <libtrain/optim/fused_sgd.hpp>

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <libtrain/base/error.hpp>
#include <libtrain/optim/learning_rate.hpp>

#include <tests/optim/parameters.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::optim {
namespace {

using test::expect_same_training;
using test::make_odd_parameters;
using test::make_parameters;
using test::message_of;
using test::Parameters;
using test::weight_with_gradient;
using ::testing::HasSubstr;
using torch::optim::OptimizerParamGroup;
using torch::optim::SGD;
using torch::optim::SGDOptions;
using torch::optim::SGDParamState;

SGDOptions all_sgd_options() {
  return SGDOptions(0.05).momentum(0.9).weight_decay(0.01).nesterov(true);
}

std::vector<SGDOptions> sgd_cases() {
  return {SGDOptions(0.05), SGDOptions(0.05).weight_decay(0.01), SGDOptions(0.05).momentum(0.9),
          SGDOptions(0.05).momentum(0.9).dampening(0.3).weight_decay(0.01), all_sgd_options()};
}

at::Tensor momentum_buffer(FusedSgd& sgd, const at::Tensor& parameter) {
  return static_cast<SGDParamState&>(*sgd.state()[parameter.unsafeGetTensorImpl()]).momentum_buffer();
}

TEST(FusedSgd, FollowsTorchsInFloat32) {
  for (const auto& options : sgd_cases()) {
    expect_same_training<FusedSgd, SGD>(make_parameters, options, at::kFloat, 1e-6);
    expect_same_training<FusedSgd, SGD>(make_odd_parameters, options, at::kFloat, 1e-6);
  }
}

TEST(FusedSgd, FollowsTorchsInFloat64) {
  for (const auto& options : sgd_cases()) {
    expect_same_training<FusedSgd, SGD>(make_parameters, options, at::kDouble, 1e-12);
    expect_same_training<FusedSgd, SGD>(make_odd_parameters, options, at::kDouble, 1e-12);
  }
}

TEST(FusedSgd, FollowsTorchsInHalfPrecision) {
  expect_same_training<FusedSgd, SGD>(make_parameters, all_sgd_options(), at::kBFloat16, 3e-2);
}

TEST(FusedSgd, TakesGroupsWithOptionsOfTheirOwn) {
  const auto groups_of = [](const Parameters& parameters) {
    std::vector<OptimizerParamGroup> groups;
    groups.emplace_back(Parameters(parameters.begin(), parameters.begin() + 2),
                        std::make_unique<SGDOptions>(SGDOptions(0.2).weight_decay(0.1)));
    groups.emplace_back(Parameters(parameters.begin() + 2, parameters.end()));
    return groups;
  };
  const auto parameters = make_parameters(at::kDouble);
  const auto expected = make_parameters(at::kDouble);
  FusedSgd ours(groups_of(parameters), all_sgd_options());
  SGD theirs(groups_of(expected), all_sgd_options());
  test::train(ours, parameters, 0, 20);
  test::train(theirs, expected, 0, 20);
  test::expect_close(parameters, expected, 1e-12);
}

TEST(FusedSgd, LeavesParametersWithoutGradientAlone) {
  const auto parameters = make_parameters(at::kFloat);
  FusedSgd sgd(parameters, all_sgd_options());
  test::train(sgd, parameters, 0, 2);
  EXPECT_TRUE(torch::equal(parameters.back(), make_parameters(at::kFloat).back()));
  EXPECT_EQ(sgd.state().count(parameters.back().unsafeGetTensorImpl()), 0u);
  EXPECT_EQ(sgd.state().size(), parameters.size() - 1);
}

TEST(FusedSgd, KeepsItsStateInTheParametersLayout) {
  const auto parameters = make_parameters(at::kFloat);
  FusedSgd sgd(parameters, all_sgd_options());
  test::train(sgd, parameters, 0, 2);
  EXPECT_TRUE(momentum_buffer(sgd, parameters[2]).is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_FALSE(momentum_buffer(sgd, parameters[2]).is_contiguous());
}

TEST(FusedSgd, GivesTheSameBitsOnAnyNumberOfThreads) {
  test::expect_same_on_threads<FusedSgd>(all_sgd_options());
}

TEST(FusedSgd, ResumesFromAFileAsIfItHadNotStopped) {
  test::expect_resumes<FusedSgd, FusedSgd>(all_sgd_options(), SGDOptions(7), 0);
}

TEST(FusedSgd, ExchangesFilesWithTorchs) {
  test::expect_resumes<SGD, FusedSgd>(all_sgd_options(), SGDOptions(7), 1e-6);
  test::expect_resumes<FusedSgd, SGD>(all_sgd_options(), SGDOptions(7), 1e-6);
}

TEST(FusedSgd, ResumesInAnotherLayout) {
  const Parameters dense{test::wave({4, 3, 3, 2}, at::kFloat, 3).set_requires_grad(true), at::Tensor()};
  const Parameters channels_last{dense[0].detach().contiguous(at::MemoryFormat::ChannelsLast).set_requires_grad(true),
                                 at::Tensor()};
  FusedSgd saved(Parameters{dense[0]}, all_sgd_options());
  FusedSgd loaded(Parameters{channels_last[0]}, all_sgd_options());
  test::train(saved, dense, 0, 1);
  {
    const torch::NoGradGuard no_grad;
    channels_last[0].copy_(dense[0]);
  }
  std::stringstream file;
  torch::save(saved, file);
  torch::load(loaded, file);
  test::train(saved, dense, 1, 4);
  test::train(loaded, channels_last, 1, 4);
  EXPECT_TRUE(torch::equal(channels_last[0], dense[0]));
  EXPECT_TRUE(momentum_buffer(loaded, channels_last[0]).is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(FusedSgd, EvaluatesItsClosureWithGradients) {
  const auto weight = torch::ones({3}, torch::requires_grad());
  FusedSgd sgd(Parameters{weight}, SGDOptions(0.25));
  const torch::NoGradGuard no_grad;
  const auto loss = sgd.step([&] {
    auto result = weight.pow(2).sum();
    result.backward();
    return result;
  });
  EXPECT_EQ(loss.item<float>(), 3.0f);
  EXPECT_EQ(weight[0].item<float>(), 0.5f);
  EXPECT_FALSE(sgd.step().defined());
}

TEST(FusedSgd, FollowsASchedule) {
  const auto weight = weight_with_gradient({2});
  FusedSgd sgd(Parameters{weight}, SGDOptions(1.0));
  LearningRate rate(sgd, 1.0, polynomial_decay({.steps = 4}));
  for (int step = 0; step < 4; ++step) {
    rate.set(step);
    sgd.step();
  }
  // 1 - (1 + 0.75 + 0.5 + 0.25)
  EXPECT_EQ(weight[0].item<float>(), -1.5f);
}

TEST(FusedSgd, LetsNoOlderGraphMixWeights) {
  test::expect_older_graphs_refused<FusedSgd>(all_sgd_options());
}

TEST(FusedSgd, RefusesWhatItCannotUse) {
  const auto weight = weight_with_gradient({3});
  FusedSgd sgd(Parameters{weight}, all_sgd_options());
  weight.mutable_grad() = torch::ones({3}).to_sparse();
  EXPECT_THAT(message_of<UsageError>([&] { sgd.step(); }), HasSubstr("FusedSgd takes dense gradients; one is Sparse"));
  weight.mutable_grad() = torch::ones({2});
  EXPECT_THAT(message_of<UsageError>([&] { sgd.step(); }), HasSubstr("of sizes [3] with a gradient of sizes [2]"));

  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(Parameters{weight}, std::make_unique<torch::optim::AdamWOptions>(0.1));
  FusedSgd misled(groups, all_sgd_options());
  EXPECT_THAT(message_of<UsageError>([&] { misled.step(); }), HasSubstr("options of another optimizer"));
  EXPECT_TRUE(torch::equal(weight, torch::ones({3})));
}

TEST(FusedSgd, RefusesTheStateOfOtherParameters) {
  FusedSgd saved(Parameters{weight_with_gradient({3})}, all_sgd_options());
  saved.step();
  std::stringstream file;
  torch::save(saved, file);
  FusedSgd loaded(Parameters{weight_with_gradient({4})}, all_sgd_options());
  torch::load(loaded, file);
  EXPECT_THAT(message_of<UsageError>([&] { loaded.step(); }), HasSubstr("state of sizes [3]"));
}

}  // namespace
}  // namespace libtrain::optim
