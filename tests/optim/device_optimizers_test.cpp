#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <sstream>
#include <tuple>
#include <vector>

#include <ATen/ops/_amp_update_scale.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/serialize.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/optim/fused_adamw.hpp>
#include <libtrain/optim/fused_sgd.hpp>
#include <libtrain/optim/gradient_clipping.hpp>
#include <libtrain/optim/lamb.hpp>
#include <libtrain/optim/lars.hpp>
#include <libtrain/optim/loss_scaler.hpp>
#include <libtrain/optim/moving_average.hpp>

#include <tests/optim/parameters.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>

// What optimizers, clipping, loss scaling and averages do on the device under test is compared with the host.

namespace libtrain::optim {
namespace {

using test::device;
using test::make_odd_parameters;
using test::make_parameters;
using test::message_of;
using test::Parameters;
using ::testing::HasSubstr;
using torch::optim::AdamWOptions;
using torch::optim::SGDOptions;

constexpr float kFloatInfinity = std::numeric_limits<float>::infinity();
constexpr float kFloatNan = std::numeric_limits<float>::quiet_NaN();

Parameters moved(const Parameters& parameters, at::Device to) {
  Parameters result;
  for (const auto& parameter : parameters) {
    result.push_back(parameter.detach().clone().to(to).set_requires_grad(true));
    // Moving makes memory without holes.
    if (!parameter.is_non_overlapping_and_dense()) {
      const auto wider = at::empty({parameter.size(0), parameter.size(1) + 1}, parameter.options().device(to));
      const auto with_holes = wider.narrow(1, 0, parameter.size(1)).detach();
      with_holes.copy_(parameter.detach());
      result.back() = with_holes;
      result.back().set_requires_grad(true);
    }
  }
  return result;
}

at::Tensor found_inf(float value) {
  return at::full({}, value, at::TensorOptions(at::kFloat).device(device()));
}

std::vector<SGDOptions> sgd_options() {
  return {SGDOptions(0.1), SGDOptions(0.05).momentum(0.9).weight_decay(0.01),
          SGDOptions(0.05).momentum(0.9).weight_decay(0.01).nesterov(true),
          SGDOptions(0.05).momentum(0.8).dampening(0.3)};
}

std::vector<AdamWOptions> adamw_options() {
  const auto all = AdamWOptions(0.01).betas(std::make_tuple(0.8, 0.95)).eps(1e-6).weight_decay(0.1);
  return {AdamWOptions(1e-3), all, AdamWOptions(all).amsgrad(true)};
}

std::vector<LarsOptions> lars_options() {
  return {LarsOptions(2).weight_decay(0.01), LarsOptions(2).momentum(0), LarsOptions(2).skip_one_dimensional(false)};
}

std::vector<LambOptions> lamb_options() {
  return {LambOptions(0.01), LambOptions(0.01).weight_decay(0), LambOptions(0.01).skip_one_dimensional(true)};
}

template <typename Optimizer, typename Options>
void expect_follows_host(const Options& options, at::ScalarType type, double relative) {
  for (const auto make : {make_parameters, make_odd_parameters}) {
    const auto on_host = make(type);
    const auto on_device = moved(on_host, device());
    Optimizer expected(on_host, options);
    Optimizer optimizer(on_device, options);
    test::train(expected, on_host, 0, 50);
    test::train(optimizer, on_device, 0, 50);
    test::expect_close(moved(on_device, at::kCPU), on_host, relative);
    EXPECT_FALSE(torch::equal(on_device.front().cpu(), make(type).front())) << "nothing was trained";
  }
}

template <typename Optimizer, typename Options>
void expect_follows_host(const std::vector<Options>& cases) {
  for (const auto& options : cases) {
    expect_follows_host<Optimizer>(options, at::kFloat, 1e-5);
    expect_follows_host<Optimizer>(options, at::kDouble, 1e-12);
  }
}

TEST(DeviceOptimizers, FusedSgdFollowsTheHost) {
  expect_follows_host<FusedSgd>(sgd_options());
}

TEST(DeviceOptimizers, FusedAdamwFollowsTheHost) {
  expect_follows_host<FusedAdamW>(adamw_options());
}

TEST(DeviceOptimizers, LarsFollowsTheHost) {
  expect_follows_host<Lars>(lars_options());
}

TEST(DeviceOptimizers, LambFollowsTheHost) {
  expect_follows_host<Lamb>(lamb_options());
}

// Of one step: rounding to 16 bits makes longer runs diverge.
template <typename Optimizer, typename Options>
void expect_takes_half_precision(const Options& options, const std::vector<at::ScalarType>& types) {
  for (const auto type : types) {
    const auto on_host = make_parameters(type);
    const auto on_device = moved(on_host, device());
    Optimizer expected(on_host, options);
    Optimizer optimizer(on_device, options);
    test::train(expected, on_host, 0, 1);
    test::train(optimizer, on_device, 0, 1);
    test::expect_close(moved(on_device, at::kCPU), on_host, 2e-2);
  }
}

TEST(DeviceOptimizers, TakeHalfPrecision) {
  // In float16, squares of small gradients underflow on the way to the reference's second moments.
  expect_takes_half_precision<FusedAdamW>(adamw_options()[1], {at::kBFloat16});
  // The pretended GPU runs LibTorch's CPU kernels, and that of _fused_sgd_, which the others use, does not store most
  // parameters of 16 bits (2.11). CUDA's does.
  if (device().type() == at::kPrivateUse1) return;
  expect_takes_half_precision<FusedSgd>(sgd_options()[1], {at::kHalf, at::kBFloat16});
  expect_takes_half_precision<Lars>(lars_options()[0], {at::kHalf, at::kBFloat16});
  expect_takes_half_precision<Lamb>(lamb_options()[0], {at::kBFloat16});
}

void set_non_finite_gradients(const Parameters& parameters) {
  for (std::size_t index = 0; index + 1 < parameters.size(); ++index) {
    parameters[index].mutable_grad() = at::full_like(parameters[index], index % 2 == 0 ? kFloatNan : kFloatInfinity);
  }
}

// The host takes the same steps without the skipped ones, of which the first is the first of all.
template <typename Optimizer, typename Options>
void expect_skips(const Options& options) {
  const auto on_host = make_parameters(at::kDouble);
  const auto on_device = moved(on_host, device());
  Optimizer expected(on_host, options);
  Optimizer optimizer(on_device, options);
  for (int step = 0; step < 8; ++step) {
    if (step % 3 == 0) {
      const auto before = moved(on_device, at::kCPU);
      set_non_finite_gradients(on_device);
      optimizer.step_unless(found_inf(step == 0 ? 1.0f : 3.0f));
      test::expect_equal(moved(on_device, at::kCPU), before);
    }
    test::set_gradients(on_device, step);
    optimizer.step_unless(found_inf(0));
    test::train(expected, on_host, step, step + 1);
  }
  test::expect_close(moved(on_device, at::kCPU), on_host, 1e-12);
}

TEST(DeviceOptimizers, ASkippedStepChangesNothing) {
  for (const auto& options : sgd_options()) expect_skips<FusedSgd>(options);
  for (const auto& options : adamw_options()) expect_skips<FusedAdamW>(options);
  for (const auto& options : lars_options()) expect_skips<Lars>(options);
  for (const auto& options : lamb_options()) expect_skips<Lamb>(options);
}

// A parameter that has no gradient in some steps counts its own steps.
TEST(DeviceOptimizers, CountTheStepsOfEachParameter) {
  const auto on_host = make_parameters(at::kDouble);
  const auto on_device = moved(on_host, device());
  FusedAdamW expected(on_host, adamw_options()[1]);
  FusedAdamW optimizer(on_device, adamw_options()[1]);
  for (int step = 0; step < 6; ++step) {
    for (const auto& side : {on_host, on_device}) {
      test::set_gradients(side, step);
      if (step < 3) side.front().mutable_grad() = at::Tensor();
    }
    expected.step();
    optimizer.step();
  }
  test::expect_close(moved(on_device, at::kCPU), on_host, 1e-12);
}

TEST(DeviceOptimizers, TakeGroupsWithOptionsOfTheirOwn) {
  const auto groups_of = [](const Parameters& parameters) {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(Parameters(parameters.begin(), parameters.begin() + 2),
                        std::make_unique<SGDOptions>(SGDOptions(0.5)));
    groups.emplace_back(Parameters(parameters.begin() + 2, parameters.end()));
    return groups;
  };
  const auto on_host = make_parameters(at::kDouble);
  const auto on_device = moved(on_host, device());
  FusedSgd expected(groups_of(on_host), sgd_options()[2]);
  FusedSgd optimizer(groups_of(on_device), sgd_options()[2]);
  test::train(expected, on_host, 0, 10);
  test::train(optimizer, on_device, 0, 10);
  test::expect_close(moved(on_device, at::kCPU), on_host, 1e-12);
}

// Module::parameters() lists a tied weight once for each of its names.
template <typename Optimizer, typename Options>
void expect_updates_once(const Options& options) {
  for (const auto on : {at::Device(at::kCPU), device()}) {
    const auto listed_once = moved(make_parameters(at::kFloat), on);
    const auto listed_twice = moved(make_parameters(at::kFloat), on);
    auto list = listed_twice;
    list.insert(list.end(), listed_twice.begin(), listed_twice.end());
    Optimizer expected(listed_once, options);
    Optimizer optimizer(list, options);
    test::train(expected, listed_once, 0, 3);
    test::train(optimizer, listed_twice, 0, 3);
    for (std::size_t index = 0; index < listed_once.size(); ++index)
      EXPECT_TRUE(torch::equal(listed_twice[index], listed_once[index])) << index << " on " << on;
  }
}

TEST(DeviceOptimizers, UpdateATiedParameterOnce) {
  expect_updates_once<FusedSgd>(sgd_options()[1]);
  expect_updates_once<FusedAdamW>(adamw_options()[2]);
  expect_updates_once<Lars>(lars_options()[0]);
  expect_updates_once<Lamb>(lamb_options()[0]);
}

TEST(DeviceOptimizers, UpdateAParameterOfTwoGroupsWithTheFirst) {
  const auto weight = moved({torch::ones({3}, torch::requires_grad())}, device()).front();
  weight.mutable_grad() = at::ones_like(weight);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(Parameters{weight}, std::make_unique<SGDOptions>(0.25));
  groups.emplace_back(Parameters{weight}, std::make_unique<SGDOptions>(0.5));
  FusedSgd sgd(groups, SGDOptions(1));
  sgd.step();
  EXPECT_TRUE(torch::equal(weight.detach().cpu(), torch::full({3}, 0.75)));
}

// Saves after 5 steps on one device, continues on another.
template <typename Optimizer, typename Options>
void expect_moves(at::Device from, at::Device to, const Options& options) {
  const auto first = moved(make_parameters(at::kDouble), from);
  Optimizer saved(first, options);
  test::train(saved, first, 0, 5);
  std::stringstream file;
  torch::save(saved, file);
  const auto second = moved(first, to);
  Optimizer loaded(second, Options(7));
  torch::load(loaded, file, at::Device(at::kCPU));
  test::train(saved, first, 5, 10);
  test::train(loaded, second, 5, 10);
  test::expect_close(moved(second, at::kCPU), moved(first, at::kCPU), 1e-12);
}

TEST(DeviceOptimizers, FilesMoveBetweenDeviceAndHost) {
  for (const auto& [from, to] : {std::pair{device(), at::Device(at::kCPU)}, {at::Device(at::kCPU), device()}}) {
    expect_moves<FusedSgd>(from, to, sgd_options()[1]);
    expect_moves<FusedAdamW>(from, to, adamw_options()[2]);
    expect_moves<Lars>(from, to, lars_options()[0]);
    expect_moves<Lamb>(from, to, lamb_options()[0]);
  }
}

TEST(DeviceOptimizers, FilesDoNotCountSkippedSteps) {
  const auto parameters = moved(make_parameters(at::kFloat), device());
  FusedAdamW adamw(parameters, adamw_options()[1]);
  for (int step = 0; step < 7; ++step) {
    test::set_gradients(parameters, step);
    adamw.step_unless(found_inf(step % 3 == 0 ? 1.0f : 0.0f));
  }
  std::stringstream file;
  torch::save(adamw, file);
  const auto& state = *adamw.state().at(parameters.front().unsafeGetTensorImpl());
  EXPECT_EQ(static_cast<const torch::optim::AdamWParamState&>(state).step(), 4);
}

TEST(DeviceOptimizers, LetNoOlderGraphMixWeights) {
  const auto weight = moved({torch::ones({2, 2}, torch::requires_grad())}, device()).front();
  FusedSgd sgd(Parameters{weight}, SGDOptions(0.1));
  const auto loss = weight.pow(2).sum();
  weight.mutable_grad() = at::ones_like(weight);
  sgd.step();
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(DeviceOptimizers, RefuseAFlagThatIsNone) {
  FusedSgd sgd(moved(make_parameters(at::kFloat), device()), SGDOptions(0.1));
  EXPECT_THAT(message_of<UsageError>([&] { sgd.step_unless(at::Tensor()); }), HasSubstr("an undefined tensor"));
  EXPECT_THAT(message_of<UsageError>([&] { sgd.step_unless(at::zeros({2})); }), HasSubstr("shape [2]"));
  EXPECT_THAT(message_of<UsageError>([&] { sgd.step_unless(at::zeros({}, at::kBool)); }), HasSubstr("dtype Bool"));
}

Parameters with_gradients(at::ScalarType type, at::Device on) {
  const auto parameters = moved(make_odd_parameters(type), on);
  test::set_gradients(parameters, 1);
  return parameters;
}

TEST(DeviceGradients, AreClippedAsOnTheHost) {
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    for (const double norm : {1.0, 2.0, std::numeric_limits<double>::infinity()}) {
      for (const double max_norm : {0.1, 1e3}) {
        const auto on_host = with_gradients(type, at::kCPU);
        const auto on_device = with_gradients(type, device());
        const double expected = clip_gradients(on_host, {.max_norm = max_norm, .norm = norm});
        const double got = clip_gradients(on_device, {.max_norm = max_norm, .norm = norm});
        EXPECT_NEAR(got, expected, 1e-5 * expected);
        const double relative = type == at::kHalf || type == at::kBFloat16 ? 2e-2 : 1e-5;
        for (std::size_t index = 0; index + 1 < on_host.size(); ++index) {
          EXPECT_TRUE(torch::allclose(on_device[index].grad().cpu(), on_host[index].grad(), relative, 0)) << index;
        }
      }
    }
  }
}

TEST(DeviceGradients, OfSeveralDevicesHaveOneNorm) {
  const auto on_host = torch::zeros({1}, torch::requires_grad());
  const auto on_device = torch::zeros({2}, at::TensorOptions(device()).requires_grad(true));
  on_host.mutable_grad() = torch::full({1}, 12.0f);
  on_device.mutable_grad() = torch::tensor({3.0f, -4.0f}).to(device());
  EXPECT_NEAR(clip_gradients({on_host, on_device}, {.max_norm = 6.5}), 13, 1e-5);
  EXPECT_NEAR(on_host.grad()[0].item<double>(), 6, 1e-5);
  EXPECT_NEAR(on_device.grad()[1].item<double>(), -2, 1e-5);
}

TEST(DeviceGradients, ThatAreNotFiniteShowInTheirNorm) {
  const auto parameters = with_gradients(at::kFloat, device());
  parameters[0].grad()[0][0] = kFloatNan;
  EXPECT_TRUE(std::isnan(gradient_norm(parameters)));
  EXPECT_THAT(message_of<UsageError>([&] { clip_gradients(parameters, {.error_if_non_finite = true}); }),
              HasSubstr("the gradient of parameter 0 of"));
}

// One parameter whose gradient is finite or not.
at::Tensor scaled_parameter(bool overflow, at::ScalarType type = at::kFloat) {
  const auto options = at::TensorOptions(type).device(device());
  auto parameter = torch::ones({70}, options).set_requires_grad(true);
  parameter.mutable_grad() = torch::full({70}, 8.0, options);
  if (overflow) parameter.grad()[69] = kFloatNan;
  return parameter;
}

// torch.amp.GradScaler grows and backs off with this operator; its CPU kernel is the reference.
TEST(DeviceLossScaler, ScaleFollowsPyTorchs) {
  constexpr double kGrowth = 1.7;
  constexpr double kBackoff = 0.3;
  LossScaler scaler{{.initial_scale = 100,
                     .growth_factor = kGrowth,
                     .backoff_factor = kBackoff,
                     .growth_interval = 3,
                     .minimum_scale = 1e-30}};
  auto scale = torch::full({}, 100, at::kFloat);
  auto tracker = torch::zeros({}, at::kInt);
  std::mt19937 random{11};
  std::int64_t overflows = 0;
  for (int step = 0; step < 300; ++step) {
    const bool overflow = random() % 8 == 0;
    overflows = overflow ? overflows + 1 : 0;
    EXPECT_EQ(scaler.unscale({scaled_parameter(overflow)}), !overflow);
    scaler.update();
    at::_amp_update_scale_(scale, tracker, torch::full({}, overflow ? 1 : 0, at::kFloat), kGrowth, kBackoff, 3);
    ASSERT_EQ(scaler.state().scale, static_cast<double>(scale.item<float>())) << step;
    ASSERT_EQ(scaler.state().finite_steps, tracker.item<int>()) << step;
    ASSERT_EQ(scaler.state().overflows, overflows) << step;
  }
}

TEST(DeviceLossScaler, ScaleStaysWithinItsBounds) {
  LossScaler low{{.initial_scale = 4, .minimum_scale = 1.5}};
  for (const double scale : {2.0, 1.5, 1.5}) {
    low.unscale({scaled_parameter(true)});
    low.update();
    EXPECT_EQ(low.state().scale, scale);
  }
  LossScaler high{{.initial_scale = 0x1p127, .growth_interval = 1}};
  high.unscale({scaled_parameter(false)});
  high.update();
  EXPECT_EQ(high.state().scale, 0x1p127);
}

TEST(DeviceLossScaler, ContinuesFromAStateAtTheEndOfAnInterval) {
  for (const bool was_on_device : {false, true}) {
    LossScaler scaler{{.growth_interval = 3}};
    if (was_on_device) {
      scaler.unscale({scaled_parameter(false)});
      scaler.update();
    }
    scaler.load_state({.scale = 0.5, .finite_steps = 7, .overflows = 2});
    scaler.unscale({scaled_parameter(false)});
    scaler.update();
    EXPECT_EQ(scaler.state().scale, 1);
    EXPECT_EQ(scaler.state().finite_steps, 0);
    EXPECT_EQ(scaler.state().overflows, 0);
  }
}

TEST(DeviceLossScaler, UnscalesEveryType) {
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    for (const bool overflow : {false, true}) {
      LossScaler scaler{{.initial_scale = 16, .float16_gradients = Float16Gradients::allowed}};
      const auto parameter = scaled_parameter(overflow, type);
      EXPECT_EQ(scaler.unscale({parameter, scaled_parameter(false)}), !overflow) << type;
      EXPECT_TRUE(parameter.grad().narrow(0, 0, 69).eq(0.5).all().item<bool>()) << type;
    }
  }
}

TEST(DeviceLossScaler, SkipsTheStepsOfEachOptimizerByItsOwnGradients) {
  const auto bad = scaled_parameter(true);
  const auto good = scaled_parameter(false);
  FusedSgd first(Parameters{bad}, SGDOptions(1));
  FusedSgd second(Parameters{good}, SGDOptions(1));
  torch::optim::SGD third(Parameters{scaled_parameter(true)}, SGDOptions(1));
  LossScaler scaler{{.initial_scale = 8}};
  EXPECT_FALSE(scaler.step(first));
  EXPECT_TRUE(scaler.step(second));
  EXPECT_FALSE(scaler.step(third));
  scaler.update();
  EXPECT_TRUE(bad.eq(1).all().item<bool>());
  EXPECT_TRUE(good.eq(0).all().item<bool>());
  EXPECT_TRUE(third.parameters().front().eq(1).all().item<bool>());
  EXPECT_EQ(scaler.state().scale, 4);
  EXPECT_EQ(scaler.scale(found_inf(2)).item<float>(), 8);
  scaler.report_overflow();
  EXPECT_FALSE(scaler.step(second));
  scaler.update();
  EXPECT_EQ(scaler.state().scale, 2);
  EXPECT_EQ(scaler.state().overflows, 2);
}

TEST(DeviceMovingAverage, IsThatOfTheHost) {
  const auto make = [](at::Device on) {
    auto module = std::make_shared<torch::nn::Module>("module");
    for (const auto type : {at::kHalf, at::kFloat, at::kDouble}) {
      module->register_parameter(text(type), test::wave({2, 3}, type, 2).to(on));
    }
    module->register_buffer("count", torch::zeros({}, at::TensorOptions(at::kLong).device(on)));
    return module;
  };
  const auto on_host = make(at::kCPU);
  const auto on_device = make(device());
  MovingAverage expected{*on_host, {.decay = 0.75}};
  MovingAverage average{*on_device, {.decay = 0.75}};
  for (int step = 0; step < 5; ++step) {
    const torch::NoGradGuard no_grad;
    for (const auto& module : {on_host, on_device}) {
      for (auto& tensor : module->parameters()) tensor.add_(0.5);
      for (auto& tensor : module->buffers()) tensor.add_(1);
    }
    expected.update(*on_host);
    average.update(*on_device);
  }
  const auto wanted = expected.named_tensors();
  const auto got = average.named_tensors();
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t index = 0; index < wanted.size(); ++index) {
    EXPECT_EQ(got[index].second.scalar_type(), wanted[index].second.scalar_type()) << wanted[index].first;
    EXPECT_TRUE(torch::allclose(got[index].second.cpu(), wanted[index].second, 1e-6)) << wanted[index].first;
  }
}

}  // namespace
}  // namespace libtrain::optim
