#include <libtrain/optim/moving_average.hpp>

#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::optim {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

void fill(torch::nn::Module& module, double value) {
  const torch::NoGradGuard no_grad;
  for (auto& parameter : module.parameters()) parameter.fill_(value);
}

// One parameter, "weight".
void give_weight(torch::nn::Module& module, at::ScalarType type, double value) {
  module.register_parameter("weight", torch::full({3}, value, type));
}

at::Tensor named(const MovingAverage& average, const std::string& name) {
  for (const auto& [key, tensor] : average.named_tensors()) {
    if (key == name) return tensor;
  }
  ADD_FAILURE() << "no tensor '" << name << "'";
  return torch::zeros({1});
}

bool all_near(const at::Tensor& tensor, double value, double tolerance) {
  return tensor.to(at::kDouble).sub(value).abs().le(tolerance).all().item<bool>();
}

TEST(MovingAverage, ForgetsItsStartGeometrically) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    torch::nn::Module model{"model"};
    give_weight(model, type, 0);
    MovingAverage average{model, {.decay = 0.9}};
    fill(model, 1);
    for (int update = 1; update <= 20; ++update) {
      average.update(model);
      EXPECT_TRUE(all_near(named(average, "weight"), 1 - std::pow(0.9, update), 1e-6)) << update;
    }
    EXPECT_EQ(average.updates(), 20);
    EXPECT_EQ(named(average, "weight").scalar_type(), type);
  }
}

TEST(MovingAverage, IsTheRecursionOverChangingWeights) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(3u);
  torch::nn::Linear model{5, 4};
  MovingAverage average{*model, {.decay = 0.75}};
  auto expected = model->weight.detach().to(at::kDouble).clone();
  for (int update = 0; update < 10; ++update) {
    {
      const torch::NoGradGuard no_grad;
      model->weight.normal_(0, 1, generator);
    }
    average.update(*model);
    expected = 0.75 * expected + 0.25 * model->weight.detach().to(at::kDouble);
    EXPECT_TRUE(torch::allclose(named(average, "weight").to(at::kDouble), expected, 1e-5, 1e-6));
  }
}

TEST(MovingAverage, WarmUpForgetsTheStartSooner) {
  torch::nn::Module model{"model"};
  give_weight(model, at::kDouble, 0);
  MovingAverage average{model, {.decay = 0.35, .warm_up = true}};
  fill(model, 1);
  // (1 + n) / (10 + n) for n = 0, 1, 2, 3, and the decay from n = 4 on, where it would be 5 / 14.
  double left = 1;
  for (const double decay : {1.0 / 10, 2.0 / 11, 3.0 / 12, 4.0 / 13, 0.35, 0.35}) {
    left *= decay;
    average.update(model);
    EXPECT_TRUE(all_near(named(average, "weight"), 1 - left, 1e-12)) << decay;
  }
}

TEST(MovingAverage, AveragesHalfPrecisionInFloat32) {
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    torch::nn::Module model{"model"};
    give_weight(model, type, 1);
    MovingAverage average{model, {.decay = 0.9999}};
    fill(model, 2);
    for (int update = 0; update < 100; ++update) average.update(model);
    // One such update is less than half a unit in the last place of either type.
    EXPECT_EQ(named(average, "weight").scalar_type(), at::kFloat);
    EXPECT_TRUE(all_near(named(average, "weight"), 2 - std::pow(0.9999, 100), 1e-5));
  }
}

TEST(MovingAverage, AveragesBuffersAndCopiesIntegers) {
  torch::nn::BatchNorm1d norm{2};
  MovingAverage average{*norm, {.decay = 0.5}};
  norm->running_mean.fill_(4);
  norm->num_batches_tracked.fill_(7);
  average.update(*norm);
  EXPECT_TRUE(all_near(named(average, "running_mean"), 2, 1e-6));
  EXPECT_EQ(named(average, "num_batches_tracked").item<std::int64_t>(), 7);
}

TEST(MovingAverage, DoesNotChangeTheModuleOrItsGradients) {
  torch::nn::Linear model{3, 2};
  MovingAverage average{*model, {.decay = 0.5}};
  fill(*model, 1);
  model->forward(torch::ones({1, 3})).sum().backward();
  average.update(*model);
  EXPECT_TRUE(all_near(model->weight.detach(), 1, 0));
  EXPECT_TRUE(all_near(model->weight.grad(), 1, 0));
  EXPECT_FALSE(named(average, "weight").requires_grad());
}

TEST(MovingAverage, SwapLendsTheAverageToTheModule) {
  torch::nn::Sequential model{torch::nn::Linear(3, 2), torch::nn::BatchNorm1d(2)};
  fill(*model, 0);
  MovingAverage average{*model, {.decay = 0.5}};
  fill(*model, 1);
  average.update(*model);
  fill(*model, 0.1);
  const auto weight = model->parameters().front();
  const auto before = weight.detach().clone();
  {
    const auto swapped = average.swap(*model);
    for (const auto& parameter : model->parameters()) EXPECT_TRUE(all_near(parameter.detach(), 0.5, 0));
    EXPECT_TRUE(all_near(named(average, "0.weight"), 0.5, 0));
  }
  EXPECT_TRUE(torch::equal(weight.detach(), before));
  EXPECT_TRUE(all_near(named(average, "0.weight"), 0.5, 0));
  average.update(*model);
  EXPECT_TRUE(all_near(named(average, "0.weight"), 0.3, 1e-6));
}

TEST(MovingAverage, SwapRestoresHalfPrecisionBitByBit) {
  torch::nn::Module model{"model"};
  model.register_parameter("weight", torch::linspace(-3, 3, 97).to(at::kHalf));
  MovingAverage average{model};
  const auto weight = model.parameters().front();
  const auto before = weight.detach().clone();
  fill(model, 0);
  average.update(model);
  const auto kept = named(average, "weight").clone();
  {
    auto swapped = average.swap(model);
    EXPECT_TRUE(torch::equal(weight.detach(), kept.to(at::kHalf)));
    swapped.swap_back();
    EXPECT_TRUE(all_near(weight.detach(), 0, 0));
    swapped.swap_back();
  }
  EXPECT_TRUE(torch::equal(named(average, "weight"), kept));
  average.copy_to(model);
  EXPECT_TRUE(all_near(weight.detach() - before, 0, 2e-3));
}

TEST(MovingAverage, SwapRestoresTiedParameters) {
  torch::nn::Module model{"model"};
  const auto tied = torch::ones({2});
  model.register_parameter("encoder", tied);
  model.register_parameter("decoder", tied);
  MovingAverage average{model};
  fill(model, 5);
  {
    const auto swapped = average.swap(model);
    EXPECT_TRUE(all_near(tied.detach(), 1, 0));
  }
  EXPECT_TRUE(all_near(tied.detach(), 5, 0));
}

TEST(MovingAverage, SwapEndsWithAnException) {
  torch::nn::Linear model{3, 2};
  MovingAverage average{*model};
  fill(*model, 5);
  try {
    const auto swapped = average.swap(*model);
    throw std::runtime_error("evaluation failed");
  } catch (const std::runtime_error&) {
    EXPECT_TRUE(all_near(model->weight.detach(), 5, 0));
  }
  average.update(*model);
}

TEST(MovingAverage, SwapMayOutliveTheAverageAndMove) {
  torch::nn::Linear model{3, 2};
  auto average = std::make_unique<MovingAverage>(*model);
  fill(*model, 5);
  {
    auto first = average->swap(*model);
    const auto second = std::move(first);
    average.reset();
    EXPECT_FALSE(all_near(model->weight.detach(), 5, 0));
  }
  EXPECT_TRUE(all_near(model->weight.detach(), 5, 0));
}

TEST(MovingAverage, RefusesToBeUsedWhileSwapped) {
  torch::nn::Linear model{3, 2};
  MovingAverage average{*model};
  const auto swapped = average.swap(*model);
  EXPECT_THAT(message_of<UsageError>([&] { average.update(*model); }),
              AllOf(HasSubstr("MovingAverage::update"), HasSubstr("swap_back()")));
  EXPECT_THAT(message_of<UsageError>([&] { const auto again = average.swap(*model); }),
              HasSubstr("MovingAverage::swap"));
}

TEST(MovingAverage, GoesOnFromACheckpoint) {
  torch::nn::Linear model{3, 2};
  MovingAverage first{*model, {.decay = 0.9, .warm_up = true}};
  fill(*model, 1);
  first.update(*model);
  MovingAverage second{*torch::nn::Linear(3, 2), {.decay = 0.9, .warm_up = true}};
  auto tensors = first.named_tensors();
  for (auto& entry : tensors) entry.second = entry.second.clone();
  std::swap(tensors.front(), tensors.back());
  second.load(tensors, first.updates());
  for (auto* average : {&first, &second}) {
    fill(*model, 3);
    average->update(*model);
  }
  EXPECT_EQ(second.updates(), 2);
  EXPECT_TRUE(torch::equal(named(first, "weight"), named(second, "weight")));
  EXPECT_TRUE(torch::equal(named(first, "bias"), named(second, "bias")));
}

TEST(MovingAverage, NamesAreThoseOfTheModule) {
  const MovingAverage average{*torch::nn::Sequential(torch::nn::BatchNorm1d(2))};
  std::vector<std::string> names;
  for (const auto& entry : average.named_tensors()) names.push_back(entry.first);
  EXPECT_THAT(names, ElementsAre("0.weight", "0.bias", "0.running_mean", "0.running_var", "0.num_batches_tracked"));
}

TEST(MovingAverage, RefusesAnotherModule) {
  torch::nn::Linear model{3, 2};
  MovingAverage average{*model};
  torch::nn::Linear wider{4, 2};
  EXPECT_THAT(message_of<UsageError>([&] { average.update(*wider); }),
              AllOf(HasSubstr("'weight'"), HasSubstr("[2, 3]"), HasSubstr("[2, 4]")));
  torch::nn::Linear without_bias{torch::nn::LinearOptions(3, 2).bias(false)};
  EXPECT_THAT(message_of<UsageError>([&] { average.copy_to(*without_bias); }),
              AllOf(HasSubstr("'bias' of shape [2]"), HasSubstr("nothing (of 1 tensors)")));
  torch::nn::Linear in_double{3, 2};
  in_double->to(at::kDouble);
  EXPECT_THAT(message_of<UsageError>([&] { const auto swapped = average.swap(*in_double); }),
              AllOf(HasSubstr("Float"), HasSubstr("Double")));
  torch::nn::Module renamed{"model"};
  renamed.register_parameter("kernel", torch::ones({2, 3}));
  renamed.register_parameter("bias", torch::ones({2}));
  EXPECT_THAT(message_of<UsageError>([&] { average.update(renamed); }),
              AllOf(HasSubstr("'weight'"), HasSubstr("'kernel'")));
  EXPECT_EQ(average.updates(), 0);
}

TEST(MovingAverage, RefusesAnotherCheckpoint) {
  torch::nn::Linear model{3, 2};
  MovingAverage average{*model};
  const auto before = named(average, "weight").clone();
  const auto weight = torch::zeros({2, 3});
  const auto bias = torch::zeros({2});
  EXPECT_THAT(message_of<UsageError>([&] { average.load({{"weight", weight}}, 1); }), HasSubstr("has no 'bias'"));
  EXPECT_THAT(message_of<UsageError>([&] { average.load({{"weight", weight}, {"bias", bias}, {"extra", bias}}, 1); }),
              HasSubstr("'extra'"));
  EXPECT_THAT(message_of<UsageError>([&] { average.load({{"weight", weight}, {"bias", weight}}, 1); }),
              AllOf(HasSubstr("'bias' of shape [2]"), HasSubstr("[2, 3]")));
  EXPECT_THAT(message_of<UsageError>([&] { average.load({{"weight", weight}, {"bias", bias.to(at::kDouble)}}, 1); }),
              HasSubstr("Double"));
  EXPECT_THAT(message_of<UsageError>([&] { average.load({{"weight", weight}, {"bias", bias}}, -1); }),
              HasSubstr("-1 updates"));
  EXPECT_TRUE(torch::equal(named(average, "weight"), before));
}

TEST(MovingAverage, BadOptionsAreNamed) {
  torch::nn::Linear model{3, 2};
  for (const double decay : {1.0, -0.1, std::nan("")}) {
    EXPECT_THAT(message_of<UsageError>([&] { MovingAverage{*model, {.decay = decay}}; }), HasSubstr("decay is"));
  }
}

}  // namespace
}  // namespace libtrain::optim
