#include <libtrain/optim/parameter_groups.hpp>

#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <libtrain/base/error.hpp>
#include <libtrain/optim/fused_adamw.hpp>
#include <libtrain/optim/fused_sgd.hpp>
#include <libtrain/optim/lamb.hpp>
#include <libtrain/optim/lars.hpp>
#include <libtrain/optim/learning_rate.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::optim {
namespace {

using test::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torch::optim::AdamWOptions;
using torch::optim::OptimizerParamGroup;
using torch::optim::SGDOptions;

// As the output layer of a language model, whose weight is the embedding's.
struct Output : torch::nn::Module {
  explicit Output(const at::Tensor& weight) { register_parameter("weight", weight); }
};

// Two blocks whose names begin alike, and a layer without a bias.
struct Net : torch::nn::Module {
  Net() {
    register_module("embedding", embedding);
    register_module("block1", block1);
    register_module("block10", block10);
    register_module("output", std::make_shared<Output>(embedding->weight));
  }

  torch::nn::Embedding embedding{5, 3};
  torch::nn::Sequential block1{torch::nn::Conv2d(3, 3, 1), torch::nn::BatchNorm2d(3)};
  torch::nn::Sequential block10{torch::nn::Linear(torch::nn::LinearOptions(3, 3).bias(false))};
};

// The first name of each parameter.
std::vector<std::string> names_in(const torch::nn::Module& module, const OptimizerParamGroup& group) {
  std::vector<std::string> names;
  for (const auto& parameter : group.params()) {
    for (const auto& item : module.named_parameters()) {
      if (!item.value().is_same(parameter)) continue;
      names.push_back(item.key());
      break;
    }
  }
  return names;
}

std::vector<std::string> trained(const torch::nn::Module& module) {
  std::vector<std::string> names;
  for (const auto& item : module.named_parameters()) {
    if (item.value().requires_grad()) names.push_back(item.key());
  }
  return names;
}

const auto kAll = ElementsAre("embedding.weight", "block1.0.weight", "block1.0.bias", "block1.1.weight",
                              "block1.1.bias", "block10.0.weight", "output.weight");

template <typename Options>
std::vector<double> weight_decays(const std::vector<OptimizerParamGroup>& groups) {
  std::vector<double> decays;
  for (const auto& group : groups) decays.push_back(dynamic_cast<const Options&>(group.options()).weight_decay());
  return decays;
}

TEST(ParameterGroups, DoNotDecayBiasesAndNorms) {
  const Net net;
  const auto groups = parameter_groups(net, AdamWOptions(0.1).weight_decay(0.5).eps(1e-3));
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_THAT(names_in(net, groups[0]), ElementsAre("embedding.weight", "block1.0.weight", "block10.0.weight"));
  EXPECT_THAT(names_in(net, groups[1]), ElementsAre("block1.0.bias", "block1.1.weight", "block1.1.bias"));
  EXPECT_THAT(weight_decays<AdamWOptions>(groups), ElementsAre(0.5, 0));
  EXPECT_THAT(learning_rates(groups), ElementsAre(0.1, 0.1));
  for (const auto& group : groups) EXPECT_EQ(dynamic_cast<const AdamWOptions&>(group.options()).eps(), 1e-3);
}

TEST(ParameterGroups, AreOneWhereNothingDiffers) {
  const Net net;
  EXPECT_EQ(parameter_groups(net, AdamWOptions(0.1).weight_decay(0)).size(), 1u);
  const auto groups = parameter_groups(net, AdamWOptions(0.1).weight_decay(0.5), {.decay_one_dimensional = true});
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].params().size(), 6u);
  EXPECT_THAT(weight_decays<AdamWOptions>(groups), ElementsAre(0.5));
}

TEST(ParameterGroups, HaveTheRateOfTheirLongestPrefix) {
  const Net net;
  const auto groups = parameter_groups(
      net, SGDOptions(0.5).momentum(0.9),
      {.rate_factors = {{"block1.1", 4}, {"", 0.5}, {"block1.", 0.25}, {"block1.0.bias", 0}, {"embedding", 1}}});
  ASSERT_EQ(groups.size(), 5u);
  EXPECT_THAT(learning_rates(groups), ElementsAre(2, 0.5, 0.25, 0.125, 0));
  EXPECT_THAT(names_in(net, groups[0]), ElementsAre("block1.1.weight", "block1.1.bias"));
  EXPECT_THAT(names_in(net, groups[1]), ElementsAre("embedding.weight"));
  EXPECT_THAT(names_in(net, groups[2]), ElementsAre("block10.0.weight"));
  EXPECT_THAT(names_in(net, groups[3]), ElementsAre("block1.0.weight"));
  EXPECT_THAT(names_in(net, groups[4]), ElementsAre("block1.0.bias"));
}

TEST(ParameterGroups, TakeASharedParameterOnceUnderEachOfItsNames) {
  const Net net;
  for (const auto* prefix : {"embedding", "output"}) {
    const auto groups =
        parameter_groups(net, SGDOptions(1).weight_decay(0.5),
                         {.decay_one_dimensional = true, .without_decay = {prefix}, .rate_factors = {{prefix, 2}}});
    ASSERT_EQ(groups.size(), 2u);
    EXPECT_THAT(names_in(net, groups[0]), ElementsAre("embedding.weight"));
    EXPECT_THAT(weight_decays<SGDOptions>(groups), ElementsAre(0, 0.5));
    EXPECT_THAT(learning_rates(groups), ElementsAre(2, 1));
  }
}

// With gradients of zero, a step multiplies by 1 - rate * decay.
template <typename Optimizer, typename Options>
void expect_decay_by_group(const Options& options) {
  Net net;
  const auto groups = parameter_groups(net, options, {.rate_factors = {{"block10", 0.5}}});
  Optimizer optimizer{groups, options};
  LearningRate rate{optimizer, learning_rates(groups), [](std::int64_t) { return 0.5; }};
  std::map<std::string, at::Tensor> expected;
  for (const auto& item : net.named_parameters()) {
    item.value().mutable_grad() = at::zeros_like(item.value());
    double factor = 1;
    if (item.value().dim() > 1) factor -= 0.5 * options.get_lr() * options.weight_decay();
    if (item.key() == "block10.0.weight") factor = (1 + factor) / 2;
    expected.emplace(item.key(), item.value().detach() * at::Scalar(factor));
  }
  rate.set(0);
  optimizer.step();
  for (const auto& item : net.named_parameters()) {
    EXPECT_TRUE(item.value().allclose(expected.at(item.key()), 1e-6, 0)) << item.key();
  }
}

TEST(ParameterGroups, AreWhatOptimizersTrainBy) {
  expect_decay_by_group<torch::optim::SGD>(SGDOptions(0.5).weight_decay(0.25));
  expect_decay_by_group<FusedSgd>(SGDOptions(0.5).weight_decay(0.25));
  expect_decay_by_group<torch::optim::AdamW>(AdamWOptions(0.5).weight_decay(0.25));
  expect_decay_by_group<FusedAdamW>(AdamWOptions(0.5).weight_decay(0.25));
  expect_decay_by_group<Lars>(LarsOptions(0.5).weight_decay(0.25).momentum(0));
}

// The remaining optimizers accept the options of the groups: a step checks their type.
template <typename Optimizer, typename Options>
void expect_accepted(const Options& options) {
  const Net net;
  Optimizer optimizer{parameter_groups(net, options, {.rate_factors = {{"block1", 0.5}}}), options};
  for (const auto& parameter : net.parameters()) parameter.mutable_grad() = at::zeros_like(parameter);
  optimizer.step();
  EXPECT_EQ(optimizer.param_groups().size(), 3u);
}

TEST(ParameterGroups, AreAcceptedByEveryOptimizerWithAWeightDecay) {
  expect_accepted<torch::optim::Adam>(torch::optim::AdamOptions(0.1).weight_decay(0.5));
  expect_accepted<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.1).weight_decay(0.5));
  expect_accepted<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.1).weight_decay(0.5));
  expect_accepted<Lamb>(LambOptions(0.1).weight_decay(0.5));
}

TEST(ParameterGroups, RefuseWhatSelectsNothingOrContradicts) {
  const Net net;
  const auto refusal_of = [&](const ParameterGroupOptions& division) {
    return message_of<UsageError>([&] { parameter_groups(net, SGDOptions(0.1), division); });
  };
  EXPECT_EQ(refusal_of({.rate_factors = {{"block", 0.1}}}),
            "The module has no parameter 'block' and none whose name begins with 'block.'. Its parameters are in: "
            "embedding, output, block1, block10.");
  EXPECT_THAT(refusal_of({.without_decay = {"embedding", "block1.2"}}), HasSubstr("'block1.2.'"));
  EXPECT_THAT(refusal_of({.without_decay = {"block1.0.weight.0"}}), HasSubstr("'block1.0.weight.0.'"));
  EXPECT_THAT(refusal_of({.rate_factors = {{"block1", 0.1}, {"block1.", 0.2}}}),
              HasSubstr("'block1.' have two rate factors"));
  EXPECT_THAT(refusal_of({.rate_factors = {{"block1", -1}}}), HasSubstr("The rate factor of 'block1' is -1"));
  constexpr auto kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(parameter_groups(net, SGDOptions(kNan)), UsageError);
  EXPECT_THROW(parameter_groups(net, SGDOptions(0.1).weight_decay(kNan)), UsageError);
  EXPECT_THAT(message_of<UsageError>([] { parameter_groups(torch::nn::Module{}, SGDOptions(0.1)); }),
              HasSubstr("no parameters"));
  EXPECT_THROW(learning_rates({OptimizerParamGroup{net.parameters()}}), UsageError);
}

TEST(Freezing, FollowsPrefixes) {
  Net net;
  freeze(net, {"block1", "output.weight"});
  EXPECT_THAT(trained(net), ElementsAre("block10.0.weight"));
  unfreeze(net, {"block1.1."});
  EXPECT_THAT(trained(net), ElementsAre("block1.1.weight", "block1.1.bias", "block10.0.weight"));
  unfreeze(net);
  EXPECT_THAT(trained(net), kAll);
  freeze(net);
  unfreeze(net, {"block10"});
  EXPECT_THAT(trained(net), ElementsAre("block10.0.weight"));
}

TEST(Freezing, EndsTheUpdatesOfAnOptimizer) {
  Net net;
  torch::optim::SGD sgd{net.parameters(), SGDOptions(1)};
  const at::Tensor frozen = net.block1->named_parameters()["0.weight"];
  const at::Tensor other = net.block10->named_parameters()["0.weight"];
  const auto frozen_before = frozen.detach().clone();
  const auto other_before = other.detach().clone();
  for (const auto& parameter : net.parameters()) parameter.mutable_grad() = at::ones_like(parameter);
  freeze(net, {"block1"});
  sgd.step();
  EXPECT_TRUE(frozen.equal(frozen_before));
  EXPECT_FALSE(other.equal(other_before));
}

TEST(Freezing, RefusesAMisspeltPrefixAndChangesNothing) {
  Net net;
  EXPECT_THAT(message_of<UsageError>([&] { freeze(net, {"block1", "head"}); }), HasSubstr("'head'"));
  EXPECT_THAT(trained(net), kAll);
  freeze(net);
  EXPECT_THROW(unfreeze(net, {"block10", "Block1"}), UsageError);
  EXPECT_TRUE(trained(net).empty());
}

}  // namespace
}  // namespace libtrain::optim
