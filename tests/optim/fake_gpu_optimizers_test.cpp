#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <libtrain/base/error.hpp>
#include <libtrain/optim/detail/step_recording.hpp>
#include <libtrain/optim/fused_adamw.hpp>
#include <libtrain/optim/fused_sgd.hpp>
#include <libtrain/optim/gradient_clipping.hpp>
#include <libtrain/optim/lamb.hpp>
#include <libtrain/optim/lars.hpp>
#include <libtrain/optim/loss_scaler.hpp>
#include <libtrain/optim/moving_average.hpp>

#include <tests/optim/parameters.hpp>
#include <tests/support/fake_gpu/fake_gpu.hpp>
#include <tests/support/message_of.hpp>

// What a step asks of a device: how many operations, and that neither the host nor a recorded graph waits.

namespace libtrain::optim {
namespace {

using test::fake_gpu;
using test::fake_gpu_counts;
using test::FakeGraph;
using test::message_of;
using test::NoHostSynchronization;
using test::Parameters;
using ::testing::HasSubstr;
using torch::optim::AdamWOptions;
using torch::optim::SGDOptions;

SGDOptions sgd_options() {
  return SGDOptions(0.1).momentum(0.9).weight_decay(0.01).nesterov(true);
}

Parameters weights_on_gpu(int count) {
  Parameters parameters;
  for (int index = 0; index < count; ++index) {
    const auto weight = test::wave(index % 2 == 0 ? at::IntArrayRef{4, 3} : at::IntArrayRef{5}, at::kFloat, index);
    parameters.push_back(weight.to(fake_gpu()).set_requires_grad(true));
    parameters.back().mutable_grad() = at::ones_like(parameters.back()).detach();
  }
  return parameters;
}

at::Tensor flag(float value) {
  return at::full({}, value, at::TensorOptions(at::kFloat).device(fake_gpu()));
}

template <typename Optimizer, typename Options>
std::uint64_t operations_of_a_step(int parameters, const Options& options) {
  Optimizer optimizer(weights_on_gpu(parameters), options);
  optimizer.step();
  const auto found_inf = flag(1);
  const auto before = fake_gpu_counts();
  const NoHostSynchronization no_wait;
  optimizer.step_unless(found_inf);
  return (fake_gpu_counts() - before).device_operations;
}

template <typename Optimizer, typename Options>
void expect_few_operations(const Options& options, std::uint64_t most) {
  const auto operations = operations_of_a_step<Optimizer>(4, options);
  EXPECT_EQ(operations_of_a_step<Optimizer>(300, options), operations);
  EXPECT_LE(operations, most);
}

TEST(FakeGpuOptimizers, ANumberOfParametersDoesNotAddOperations) {
  expect_few_operations<FusedSgd>(sgd_options(), 2);
  expect_few_operations<FusedAdamW>(AdamWOptions(0.01).amsgrad(true), 4);
  expect_few_operations<Lars>(LarsOptions(1).weight_decay(0.1), 24);
  expect_few_operations<Lamb>(LambOptions(0.01), 24);
}

TEST(FakeGpuOptimizers, ClippingWaitsForTheHostsReadAlone) {
  const auto parameters = weights_on_gpu(20);
  const auto before = fake_gpu_counts();
  const auto norm = clip_gradients(parameters, {.max_norm = 1});
  EXPECT_EQ((fake_gpu_counts() - before).host_synchronizations, 0u);
  EXPECT_TRUE(norm.is_on_device());
  EXPECT_EQ(norm.tensor().scalar_type(), at::kDouble);
  EXPECT_NEAR(norm, std::sqrt(10 * 12 + 10 * 5), 1e-4);
  EXPECT_NE((fake_gpu_counts() - before).host_synchronizations, 0u);
}

TEST(FakeGpuOptimizers, AScaledStepNeverWaits) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const auto weight = torch::ones({3, 3}, at::TensorOptions(type).device(fake_gpu())).set_requires_grad(true);
    FusedAdamW adamw(Parameters{weight}, AdamWOptions(0.01));
    LossScaler scaler{{.initial_scale = 8, .growth_interval = 2}};
    const auto inputs = torch::ones({2, 3}, weight.options());
    const auto before = fake_gpu_counts();
    for (int step = 0; step < 4; ++step) {
      scaler.scale(torch::mm(inputs, weight).sum()).backward();
      scaler.unscale(adamw);
      clip_gradients({weight}, {.max_norm = 0.5});
      scaler.step(adamw);
      scaler.update();
      weight.mutable_grad() = at::Tensor();
    }
    EXPECT_EQ((fake_gpu_counts() - before).host_synchronizations, 0u);
    EXPECT_EQ(scaler.state().scale, 32);
    EXPECT_FALSE(weight.eq(1).any().item<bool>());
  }
}

TEST(FakeGpuOptimizers, AnOptimizerThatCannotSkipWaitsOnce) {
  const auto parameters = weights_on_gpu(3);
  torch::optim::SGD sgd(parameters, SGDOptions(0.1));
  LossScaler scaler;
  const auto before = fake_gpu_counts();
  const auto made = scaler.step(sgd);
  EXPECT_EQ((fake_gpu_counts() - before).host_synchronizations, 1u);
  EXPECT_TRUE(made);
  EXPECT_EQ((fake_gpu_counts() - before).host_synchronizations, 1u);
}

std::uint64_t operations_of_an_average(int layers) {
  torch::nn::Module module;
  for (int layer = 0; layer < layers; ++layer) {
    const auto options = at::TensorOptions(fake_gpu());
    module.register_parameter("weight" + std::to_string(layer), torch::ones({3, 3}, options));
    module.register_buffer("mean" + std::to_string(layer), torch::ones({3}, options));
    module.register_buffer("batches" + std::to_string(layer), torch::ones({}, options.dtype(at::kLong)));
  }
  MovingAverage average{module};
  const auto before = fake_gpu_counts();
  const NoHostSynchronization no_wait;
  average.update(module);
  return (fake_gpu_counts() - before).device_operations;
}

TEST(FakeGpuOptimizers, AnAverageIsOneOperationForEachType) {
  EXPECT_EQ(operations_of_an_average(2), 2u);
  EXPECT_EQ(operations_of_an_average(20), 2u);
}

// Gradients of a step, in the memory that a graph has recorded; every fourth overflows.
void copy_gradients(const Parameters& parameters, int step) {
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    const auto gradient = test::wave(parameters[index].sizes(), at::kFloat, 7 * step + static_cast<int>(index));
    if (step % 4 == 3 && index == 1) gradient.fill_(std::numeric_limits<float>::infinity());
    parameters[index].grad().copy_(gradient.mul(8));
  }
}

void scaled_step(LossScaler& scaler, torch::optim::Optimizer& optimizer, const Parameters& parameters) {
  scaler.unscale(optimizer);
  clip_gradients(parameters, {.max_norm = 2});
  scaler.step(optimizer);
  scaler.update();
}

template <typename Optimizer, typename Options>
void expect_replays(const Options& options) {
  // As with CUDA, the default stream cannot be recorded.
  const c10::StreamGuard other_stream(
      c10::impl::VirtualGuardImpl(fake_gpu().type()).getStreamFromGlobalPool(fake_gpu()));
  const auto eager = weights_on_gpu(5);
  const auto recorded = weights_on_gpu(5);
  Optimizer of_eager(eager, options);
  Optimizer of_recorded(recorded, options);
  LossScaler scaler_of_eager{{.initial_scale = 8, .growth_interval = 3}};
  LossScaler scaler_of_recorded{{.initial_scale = 8, .growth_interval = 3}};
  const auto set_rate = [](torch::optim::Optimizer& optimizer, int step) {
    for (auto& group : optimizer.param_groups()) group.options().set_lr(0.02 / (step + 1));
  };
  FakeGraph graph;
  for (int step = 0; step < 12; ++step) {
    copy_gradients(eager, step);
    set_rate(of_eager, step);
    scaled_step(scaler_of_eager, of_eager, eager);

    copy_gradients(recorded, step);
    set_rate(of_recorded, step);
    if (step == 2) {
      of_recorded.begin_recording();
      graph.begin(fake_gpu());
      scaled_step(scaler_of_recorded, of_recorded, recorded);
      graph.end();
      of_recorded.end_recording();
    }
    if (step < 2) {
      scaled_step(scaler_of_recorded, of_recorded, recorded);
      continue;
    }
    const NoHostSynchronization no_wait;
    of_recorded.refresh_rates();
    graph.replay();
  }
  EXPECT_EQ(scaler_of_recorded.state().scale, scaler_of_eager.state().scale);
  for (std::size_t index = 0; index < eager.size(); ++index) {
    EXPECT_TRUE(torch::allclose(recorded[index].cpu(), eager[index].cpu(), 1e-5, 1e-6)) << index;
  }
}

TEST(FakeGpuOptimizers, ARecordedStepFollowsRatesAndSkips) {
  expect_replays<FusedSgd>(sgd_options());
  expect_replays<FusedAdamW>(AdamWOptions(0.01));
  expect_replays<Lars>(LarsOptions(1).weight_decay(0.1));
  expect_replays<Lamb>(LambOptions(0.01));
}

template <typename Optimizer, typename Options>
void expect_refusal_outside_of_graphs(const Options& options) {
  Optimizer optimizer(weights_on_gpu(2), options);
  optimizer.step();
  const detail::StepRecording recording;
  EXPECT_THAT(message_of<UsageError>([&] { optimizer.step(); }), HasSubstr("Give it to StepGraph's constructor"));
}

TEST(FakeGpuOptimizers, ARecordingThatWasNotGivenItsOptimizerIsRefused) {
  expect_refusal_outside_of_graphs<FusedSgd>(sgd_options());
  expect_refusal_outside_of_graphs<FusedSgd>(SGDOptions(0.1));
  expect_refusal_outside_of_graphs<FusedAdamW>(AdamWOptions(0.01));
  expect_refusal_outside_of_graphs<Lars>(LarsOptions(1));
  expect_refusal_outside_of_graphs<Lars>(LarsOptions(1).momentum(0));
  expect_refusal_outside_of_graphs<Lamb>(LambOptions(0.01));
}

TEST(FakeGpuOptimizers, ARecordingThatWouldCreateStateIsRefused) {
  FusedAdamW adamw(weights_on_gpu(2), AdamWOptions(0.01));
  adamw.begin_recording();
  EXPECT_THAT(message_of<UsageError>([&] { adamw.step(); }), HasSubstr("before begin_recording()"));
  adamw.end_recording();
  adamw.step();
  adamw.begin_recording();
  adamw.step();
}

TEST(FakeGpuOptimizers, ARecordingAfterSkippedStepsAloneIsRefusedWithDampening) {
  FusedSgd sgd(weights_on_gpu(2), SGDOptions(0.1).momentum(0.9).dampening(0.1));
  const auto skipped = flag(1);
  sgd.step_unless(skipped);
  sgd.begin_recording();
  EXPECT_THAT(message_of<UsageError>([&] { sgd.step_unless(skipped); }), HasSubstr("one step that is not skipped"));
  sgd.end_recording();
  sgd.step_unless(flag(0));
  sgd.begin_recording();
  const NoHostSynchronization no_wait;
  sgd.step_unless(skipped);
}

}  // namespace
}  // namespace libtrain::optim
