#include <libtrain/optim/loss_scaler.hpp>

#include <limits>
#include <random>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/_amp_update_scale.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::optim {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr float kOverflow = std::numeric_limits<float>::infinity();
constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();

at::Tensor with_scaled_gradient(const at::Tensor& gradient) {
  auto parameter = torch::ones(gradient.sizes(), torch::requires_grad());
  parameter.mutable_grad() = gradient;
  return parameter;
}

// Of learning rate 1.
torch::optim::SGD sgd_of(const std::vector<at::Tensor>& parameters) {
  return torch::optim::SGD{parameters, torch::optim::SGDOptions(1.0)};
}

LossScalerOptions from(double scale) {
  return {.initial_scale = scale};
}

bool holds(const at::Tensor& tensor, double value) {
  return tensor.eq(value).all().item<bool>();
}

TEST(LossScaler, ScalesTheLossAndSoItsGradients) {
  const LossScaler scaler{from(8)};
  const auto weight = torch::ones({2}, torch::requires_grad());
  const auto loss = (weight * 3).sum();
  EXPECT_EQ(scaler.scale(loss).item<float>(), 48.0f);
  scaler.scale(loss).backward();
  EXPECT_TRUE(holds(weight.grad(), 24));
}

TEST(LossScaler, ScalesHalfPrecisionLossesInFloat32) {
  const LossScaler scaler;
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    const auto scaled = scaler.scale(torch::full({}, 2, type));
    EXPECT_EQ(scaled.scalar_type(), at::kFloat);
    EXPECT_EQ(scaled.item<float>(), 131072.0f);
  }
  EXPECT_EQ(scaler.scale(torch::full({}, 2, at::kDouble)).scalar_type(), at::kDouble);
}

at::Tensor train(LossScaler* scaler) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(5u);
  torch::nn::Linear model{6, 3};
  {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : model->parameters()) parameter.normal_(0, 1, generator);
  }
  torch::optim::SGD optimizer{model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)};
  for (int step = 0; step < 10; ++step) {
    const auto inputs = torch::empty({4, 6}).normal_(0, 1, generator);
    const auto loss = torch::mse_loss(model->forward(inputs), torch::ones({4, 3}));
    optimizer.zero_grad();
    if (scaler == nullptr) {
      loss.backward();
      optimizer.step();
      continue;
    }
    scaler->scale(loss).backward();
    EXPECT_TRUE(scaler->step(optimizer));
    scaler->update();
  }
  return model->weight.detach();
}

TEST(LossScaler, StepsAsIfNothingHadBeenScaled) {
  LossScaler scaler{LossScalerOptions{.initial_scale = 1024, .growth_interval = 3}};
  EXPECT_TRUE(torch::equal(train(&scaler), train(nullptr)));
  EXPECT_EQ(scaler.state().scale, 8192);
}

TEST(LossScaler, SkipsAStepWithOverflowAndLowersTheScale) {
  const auto weight = with_scaled_gradient(torch::tensor({1.0f, kOverflow}));
  auto sgd = sgd_of({weight});
  LossScaler scaler;
  EXPECT_FALSE(scaler.step(sgd));
  EXPECT_TRUE(holds(weight, 1));
  scaler.update();
  EXPECT_EQ(scaler.state().scale, 32768);
  EXPECT_EQ(scaler.state().overflows, 1);

  weight.mutable_grad() = torch::tensor({32768.0f, 32768.0f});
  EXPECT_TRUE(scaler.step(sgd));
  EXPECT_TRUE(holds(weight, 0));
  scaler.update();
  EXPECT_EQ(scaler.state().scale, 32768);
  EXPECT_EQ(scaler.state().overflows, 0);
}

TEST(LossScaler, FindsWhatIsNotFiniteWhereverItIs) {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const float value : {kOverflow, -kOverflow, kNoNumber}) {
      for (const std::int64_t place : {0, 17, 36}) {
        const auto gradient = torch::ones({37}, type);
        gradient[place] = value;
        LossScaler scaler;
        EXPECT_FALSE(scaler.unscale({with_scaled_gradient(torch::ones({3}, type)), with_scaled_gradient(gradient)}))
            << place;
        LossScaler other;
        EXPECT_FALSE(other.unscale({with_scaled_gradient(gradient), with_scaled_gradient(torch::ones({3}))})) << place;
      }
    }
  }
}

// The scale over the steps, as PyTorch's own operator has it.
TEST(LossScaler, ScaleFollowsPyTorchs) {
  constexpr double kGrowth = 1.7;
  constexpr double kBackoff = 0.3;
  LossScaler scaler{LossScalerOptions{.initial_scale = 100,
                                      .growth_factor = kGrowth,
                                      .backoff_factor = kBackoff,
                                      .growth_interval = 3,
                                      .minimum_scale = 1e-30}};
  auto scale = torch::full({}, 100, at::kFloat);
  auto tracker = torch::zeros({}, at::kInt);
  std::mt19937 random{11};
  for (int step = 0; step < 300; ++step) {
    const bool overflow = random() % 8 == 0;
    scaler.unscale({with_scaled_gradient(torch::full({1}, overflow ? kNoNumber : 1.0f))});
    scaler.update();
    at::_amp_update_scale_(scale, tracker, torch::full({}, overflow ? 1 : 0, at::kFloat), kGrowth, kBackoff, 3);
    ASSERT_EQ(scaler.state().scale, static_cast<double>(scale.item<float>())) << step;
    ASSERT_EQ(scaler.state().finite_steps, tracker.item<int>()) << step;
  }
}

TEST(LossScaler, ScaleStaysWithinItsBounds) {
  LossScaler low{LossScalerOptions{.initial_scale = 4, .minimum_scale = 1.5}};
  for (const double scale : {2.0, 1.5, 1.5}) {
    low.report_overflow();
    low.update();
    EXPECT_EQ(low.state().scale, scale);
  }
  EXPECT_EQ(low.state().overflows, 3);
  // Twice 2^127 is more than float32 holds.
  LossScaler high{LossScalerOptions{.initial_scale = 0x1p127, .growth_interval = 1}};
  high.unscale({with_scaled_gradient(torch::ones({1}))});
  high.update();
  EXPECT_EQ(high.state().scale, 0x1p127);
  LossScaler constant{LossScalerOptions{.growth_factor = 1, .backoff_factor = 1, .growth_interval = 1}};
  constant.report_overflow();
  constant.update();
  constant.unscale({with_scaled_gradient(torch::ones({1}))});
  constant.update();
  EXPECT_EQ(constant.state().scale, 65536);
}

TEST(LossScaler, UnscalesGradientsOfEveryType) {
  LossScaler scaler{LossScalerOptions{.initial_scale = 256, .float16_gradients = Float16Gradients::allowed}};
  std::vector<at::Tensor> parameters;
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kFloat}) {
    parameters.push_back(with_scaled_gradient(torch::full({19}, 768, type)));
  }
  EXPECT_TRUE(scaler.unscale(parameters));
  for (const auto& parameter : parameters) {
    EXPECT_TRUE(holds(parameter.grad(), 3)) << parameter.grad().scalar_type();
  }
}

TEST(LossScaler, RefusesFloat16GradientsUnlessTold) {
  LossScaler scaler{from(256)};
  const std::vector parameters = {with_scaled_gradient(torch::full({2}, 256, at::kFloat)),
                                  with_scaled_gradient(torch::full({2}, 256, at::kHalf))};
  EXPECT_THAT(message_of<UsageError>([&] { scaler.unscale(parameters); }),
              AllOf(HasSubstr("1 gradients of float16"), HasSubstr("float16_gradients")));
  EXPECT_TRUE(holds(parameters[0].grad(), 256));
}

TEST(LossScaler, DividesEachGradientOnce) {
  const auto first = with_scaled_gradient(torch::full({2}, 8.0));
  const auto second = with_scaled_gradient(torch::full({2}, 16.0));
  auto sgd = sgd_of({first, second});
  LossScaler scaler{from(8)};
  EXPECT_TRUE(scaler.unscale({first, first}));
  EXPECT_TRUE(holds(first.grad(), 1));
  // What has not been unscaled by hand is by step().
  EXPECT_TRUE(scaler.step(sgd));
  EXPECT_TRUE(holds(first, 0));
  EXPECT_TRUE(holds(second, -1));
  scaler.update();
}

TEST(LossScaler, GradientsMayBeChangedBetweenUnscaleAndStep) {
  const auto weight = with_scaled_gradient(torch::full({2}, 8.0));
  auto sgd = sgd_of({weight});
  LossScaler scaler{from(8)};
  EXPECT_TRUE(scaler.unscale(sgd));
  weight.grad().mul_(0.5);
  EXPECT_TRUE(scaler.step(sgd));
  EXPECT_TRUE(holds(weight, 0.5));
}

TEST(LossScaler, SkipsEachOptimizerByItsOwnGradients) {
  const auto generator = with_scaled_gradient(torch::full({2}, kNoNumber));
  const auto discriminator = with_scaled_gradient(torch::full({2}, 8.0));
  auto first = sgd_of({generator});
  auto second = sgd_of({discriminator});
  LossScaler scaler{from(8)};
  EXPECT_FALSE(scaler.step(first));
  EXPECT_TRUE(scaler.step(second));
  EXPECT_TRUE(holds(generator, 1));
  EXPECT_TRUE(holds(discriminator, 0));
  scaler.update();
  EXPECT_EQ(scaler.state().scale, 4);
}

TEST(LossScaler, SkipsWhatOthersFoundToOverflow) {
  const auto weight = torch::ones({2}, torch::requires_grad());
  auto sgd = sgd_of({weight});
  LossScaler scaler{from(8)};
  scaler.report_overflow();
  EXPECT_FALSE(scaler.unscale(sgd));
  EXPECT_FALSE(scaler.step(sgd));
  scaler.update();
  EXPECT_EQ(scaler.state().scale, 4);
  weight.mutable_grad() = torch::full({2}, 4.0);
  EXPECT_TRUE(scaler.step(sgd));
  EXPECT_TRUE(holds(weight, 0));
}

TEST(LossScaler, SkipsParametersWithoutGradients) {
  const auto without = torch::ones({2}, torch::requires_grad());
  const auto weight = with_scaled_gradient(torch::full({2}, 8.0));
  auto sgd = sgd_of({without, weight});
  LossScaler scaler{from(8)};
  EXPECT_TRUE(scaler.step(sgd));
  EXPECT_TRUE(holds(without, 1));
  EXPECT_TRUE(holds(weight, 0));
}

TEST(LossScaler, MisuseIsNamed) {
  const auto weight = with_scaled_gradient(torch::full({3}, 8.0));
  auto sgd = sgd_of({weight});
  LossScaler scaler{from(8)};
  EXPECT_THAT(message_of<UsageError>([&] { scaler.update(); }), HasSubstr("without a step"));
  scaler.unscale(sgd);
  EXPECT_THAT(message_of<UsageError>([&] { scaler.unscale(sgd); }),
              AllOf(HasSubstr("parameter 0 of 1"), HasSubstr("[3]"), HasSubstr("update()")));
  EXPECT_TRUE(holds(weight.grad(), 1));
  scaler.step(sgd);
  EXPECT_THAT(message_of<UsageError>([&] { scaler.step(sgd); }), HasSubstr("twice"));
  scaler.update();
  sgd.zero_grad();
  EXPECT_THAT(message_of<UsageError>([&] { scaler.step(sgd); }),
              AllOf(HasSubstr("none of which has a gradient"), HasSubstr("wait()"), HasSubstr("report_overflow()")));
  EXPECT_THAT(message_of<UsageError>([&] { scaler.scale(torch::ones({1}, at::kLong)); }), HasSubstr("Long"));
  EXPECT_THAT(message_of<UsageError>([&] { scaler.scale(at::Tensor{}); }), HasSubstr("undefined"));
}

TEST(LossScaler, GoesOnFromItsState) {
  const auto finite_step = [](LossScaler& scaler) {
    scaler.unscale({with_scaled_gradient(torch::ones({1}))});
    scaler.update();
  };
  LossScaler first{LossScalerOptions{.initial_scale = 8, .growth_interval = 3}};
  finite_step(first);
  finite_step(first);
  EXPECT_EQ(first.state().finite_steps, 2);
  LossScaler second{LossScalerOptions{.growth_interval = 3}};
  second.load_state(first.state());
  finite_step(second);
  EXPECT_EQ(second.state().scale, 16);
  EXPECT_EQ(second.state().finite_steps, 0);
  EXPECT_THAT(message_of<UsageError>([&] { second.load_state({.scale = 0}); }), HasSubstr("scale is 0"));
  EXPECT_THROW(second.load_state({.finite_steps = -1}), UsageError);
  EXPECT_THROW(second.load_state({.overflows = -1}), UsageError);
  EXPECT_EQ(second.state().scale, 16);
}

TEST(LossScaler, BadOptionsAreNamed) {
  EXPECT_THAT(message_of<UsageError>([] { LossScaler{from(0)}; }), HasSubstr("initial_scale is 0"));
  EXPECT_THROW(LossScaler{from(1e39)}, UsageError);
  EXPECT_THROW(LossScaler{from(static_cast<double>(kNoNumber))}, UsageError);
  EXPECT_THAT(message_of<UsageError>([] { LossScaler{LossScalerOptions{.growth_factor = 0.5}}; }),
              HasSubstr("growth_factor is 0.5"));
  EXPECT_THAT(message_of<UsageError>([] { LossScaler{LossScalerOptions{.backoff_factor = 0}}; }),
              HasSubstr("backoff_factor is 0"));
  EXPECT_THAT(message_of<UsageError>([] { LossScaler{LossScalerOptions{.growth_interval = 0}}; }),
              HasSubstr("growth_interval is 0"));
  EXPECT_THAT(message_of<UsageError>([] { LossScaler{LossScalerOptions{.initial_scale = 2, .minimum_scale = 4}}; }),
              HasSubstr("minimum_scale is 4"));
}

}  // namespace
}  // namespace libtrain::optim
