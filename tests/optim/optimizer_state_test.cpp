#include <libtrain/optim/optimizer_state.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/rmsprop.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <libtrain/base/error.hpp>
#include <libtrain/optim/fused_adamw.hpp>
#include <libtrain/optim/fused_sgd.hpp>
#include <libtrain/optim/lamb.hpp>
#include <libtrain/optim/lars.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::optim {
namespace {

using test::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torch::optim::AdamOptions;
using torch::optim::AdamWOptions;
using torch::optim::Optimizer;
using torch::optim::RMSpropOptions;
using torch::optim::SGDOptions;

using Make = std::function<std::unique_ptr<Optimizer>(std::vector<at::Tensor>)>;

template <typename O, typename Options>
Make make(Options options) {
  return [options](std::vector<at::Tensor> parameters) { return std::make_unique<O>(std::move(parameters), options); };
}

torch::nn::Sequential make_model() {
  torch::manual_seed(1);
  torch::nn::Sequential model{torch::nn::Conv2d(3, 4, 3), torch::nn::Linear(4, 2)};
  model->to(at::kFloat);
  for (auto& parameter : model->parameters()) {
    if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
  }
  return model;
}

// `frozen` parameters at the end get no gradient.
void step(torch::nn::Sequential& model, Optimizer& optimizer, int number, std::size_t frozen = 0) {
  auto parameters = model->parameters();
  parameters.resize(parameters.size() - frozen);
  for (auto& parameter : parameters) parameter.mutable_grad() = at::sin(parameter.detach() * (number + 2));
  optimizer.step();
  for (auto& parameter : parameters) parameter.mutable_grad().reset();
}

std::vector<std::string> names_of(const NamedTensors& state) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state) names.push_back(name);
  return names;
}

NamedTensors clone(const NamedTensors& state) {
  NamedTensors copies;
  for (const auto& [name, tensor] : state) copies.emplace_back(name, tensor.clone(at::MemoryFormat::Contiguous));
  return copies;
}

class OptimizerState : public ::testing::TestWithParam<Make> {};

TEST_P(OptimizerState, ContinuesBitForBit) {
  auto straight = make_model();
  const auto optimizer = GetParam()(straight->parameters());
  for (int number = 0; number < 3; ++number) step(straight, *optimizer, number);
  auto saved = clone(optimizer_state(*optimizer, *straight));
  auto resumed = make_model();
  {
    const at::NoGradGuard no_grad;
    for (std::size_t index = 0; index < resumed->parameters().size(); ++index)
      resumed->parameters()[index].copy_(straight->parameters()[index]);
  }
  std::ranges::reverse(saved);  // any order
  const auto fresh = GetParam()(resumed->parameters());
  load_optimizer_state(*fresh, *resumed, saved);
  for (auto& [name, tensor] : saved) tensor.zero_();  // it has its own copy
  for (int number = 3; number < 6; ++number) {
    step(straight, *optimizer, number);
    step(resumed, *fresh, number);
  }
  for (std::size_t index = 0; index < resumed->parameters().size(); ++index)
    EXPECT_TRUE(at::equal(straight->parameters()[index], resumed->parameters()[index])) << index;
  EXPECT_EQ(names_of(optimizer_state(*fresh, *resumed)), names_of(optimizer_state(*optimizer, *straight)));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, OptimizerState,
    ::testing::Values(make<torch::optim::SGD>(SGDOptions(0.1).momentum(0.9)), make<torch::optim::SGD>(SGDOptions(0.1)),
                      make<torch::optim::Adam>(AdamOptions(0.01)),
                      make<torch::optim::AdamW>(AdamWOptions(0.01).amsgrad(true)),
                      make<torch::optim::RMSprop>(RMSpropOptions(0.01).momentum(0.5).centered(true)),
                      make<FusedSgd>(SGDOptions(0.1).momentum(0.9).nesterov(true)),
                      make<FusedAdamW>(AdamWOptions(0.01)), make<FusedAdamW>(AdamWOptions(0.01).amsgrad(true)),
                      make<Lars>(LarsOptions(0.1).momentum(0.9)), make<Lamb>(LambOptions(0.01))));

TEST(OptimizerStateNames, AreThoseOfTheParametersThatHaveBeenStepped) {
  auto model = make_model();
  FusedAdamW adamw{model->parameters(), AdamWOptions(0.01)};
  EXPECT_THAT(names_of(optimizer_state(adamw, *model)), ElementsAre());
  step(model, adamw, 0, 3);
  const auto state = optimizer_state(adamw, *model);
  EXPECT_THAT(names_of(state), ElementsAre("0.weight.step", "0.weight.exp_avg", "0.weight.exp_avg_sq"));
  EXPECT_EQ(state[0].second.item<std::int64_t>(), 1);
  EXPECT_EQ(state[0].second.scalar_type(), at::kLong);
}

template <typename O, typename Options>
void expect_state_of_tied_parameter(const Options& options, std::vector<std::string> names) {
  torch::nn::Module model;
  const auto tied = torch::ones({2});
  model.register_parameter("encoder", tied);
  model.register_parameter("decoder", tied);
  O optimizer{model.parameters(), options};
  tied.mutable_grad() = torch::ones({2});
  optimizer.step();
  const auto state = clone(optimizer_state(optimizer, model));
  EXPECT_EQ(names_of(state), names);
  O loaded{model.parameters(), options};
  load_optimizer_state(loaded, model, state);
  EXPECT_TRUE(at::equal(optimizer_state(loaded, model).back().second, state.back().second));
}

TEST(OptimizerStateNames, OfATiedParameterAreUsedOnce) {
  const std::vector<std::string> of_sgd{"encoder.momentum_buffer"};
  const std::vector<std::string> of_adamw{"encoder.step", "encoder.exp_avg", "encoder.exp_avg_sq"};
  expect_state_of_tied_parameter<torch::optim::SGD>(SGDOptions(0.1).momentum(0.9), of_sgd);
  expect_state_of_tied_parameter<FusedSgd>(SGDOptions(0.1).momentum(0.9), of_sgd);
  expect_state_of_tied_parameter<torch::optim::AdamW>(AdamWOptions(0.01), of_adamw);
  expect_state_of_tied_parameter<FusedAdamW>(AdamWOptions(0.01), of_adamw);
}

TEST(OptimizerStateErrors, AreNamedAndChangeNothing) {
  auto model = make_model();
  FusedAdamW adamw{model->parameters(), AdamWOptions(0.01)};
  step(model, adamw, 0);
  const auto state = clone(optimizer_state(adamw, *model));
  const auto message = [&](const NamedTensors& other) {
    return message_of<UsageError>([&] { load_optimizer_state(adamw, *model, other); });
  };
  auto other = state;
  other[0].first = "fc.weight.step";
  EXPECT_THAT(message(other), HasSubstr("'0.weight.step' is missing"));
  other = state;
  other.emplace_back("fc.weight.exp_avg", at::ones({2}));
  EXPECT_THAT(message(other), HasSubstr("'fc.weight.exp_avg', which this optimizer does not have"));
  other = state;
  other.push_back(state[1]);
  EXPECT_THAT(message(other), HasSubstr("contains '0.weight.exp_avg' twice"));
  other = state;
  other[1].second = at::ones({4, 3, 9});
  EXPECT_THAT(message(other), HasSubstr("'0.weight.exp_avg' has shape [4, 3, 9]"));
  other[1].second = at::Tensor();
  EXPECT_THAT(message(other), HasSubstr("undefined"));
  other = state;
  other[0].second = at::ones({});
  EXPECT_THAT(message(other), HasSubstr("is not one int64 number"));
  EXPECT_EQ(names_of(optimizer_state(adamw, *model)), names_of(state));
  EXPECT_TRUE(at::equal(optimizer_state(adamw, *model)[1].second, state[1].second));

  const auto stranger = make_model();
  EXPECT_THAT(message_of<UsageError>([&] { optimizer_state(adamw, *stranger); }),
              HasSubstr("the module does not have"));
  torch::optim::Adagrad adagrad{model->parameters(), torch::optim::AdagradOptions(0.1)};
  EXPECT_THAT(message_of<UsageError>([&] { optimizer_state(adagrad, *model); }), HasSubstr("its type is not known"));
}

}  // namespace
}  // namespace libtrain::optim
