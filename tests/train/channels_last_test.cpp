#include <libtrain/train/channels_last.hpp>

#include <cstddef>
#include <cstdint>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <libtrain/base/error.hpp>
#include <libtrain/models/resnet.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>

#include <tests/support/device.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>

namespace libtrain {
namespace {

using libtrain::test::device;
using libtrain::test::message_of;
using libtrain::test::on_device;
using libtrain::test::on_ranks;

constexpr auto kChannelsLast = at::MemoryFormat::ChannelsLast;

// Ranks that are threads share LibTorch's generator.
std::mutex generator_mutex;

// The first two stages of ResNet-18, with a block each. Not fewer channels: see to_channels_last().
models::ResNet small_resnet(std::uint64_t seed) {
  const std::lock_guard lock(generator_mutex);
  torch::manual_seed(seed);
  return models::ResNet(models::ResNetOptions{.layers = {1, 1}, .classes = 5, .stem = models::Stem::small});
}

models::ResNet resnet18(std::uint64_t seed) {
  torch::manual_seed(seed);
  return models::resnet18({.classes = 5, .stem = models::Stem::small});
}

struct TestImages {
  at::Tensor images;
  at::Tensor labels;
};

TestImages images_of(std::uint64_t seed) {
  const std::lock_guard lock(generator_mutex);
  torch::manual_seed(seed);
  return {torch::randn({4, 3, 16, 16}), torch::randint(5, {4}, torch::kLong)};
}

at::Tensor loss_of(models::ResNet& model, const TestImages& batch) {
  return torch::cross_entropy_loss(model->forward(batch.images), batch.labels);
}

double relative_difference(const at::Tensor& actual, const at::Tensor& expected) {
  return ((actual - expected).norm() / expected.norm()).item<double>();
}

TEST(ChannelsLast, ComputesWhatContiguousTensorsCompute) {
  auto expected = resnet18(1);
  auto actual = resnet18(1);
  to_channels_last(*actual);
  auto batch = images_of(2);
  const auto expected_loss = loss_of(expected, batch);
  batch.images = batch.images.contiguous(kChannelsLast);
  const auto actual_loss = loss_of(actual, batch);
  EXPECT_NEAR(actual_loss.item<double>(), expected_loss.item<double>(), 1e-5);
  expected_loss.backward();
  actual_loss.backward();
  const auto gradients = actual->parameters();
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    EXPECT_LT(relative_difference(gradients[p].grad(), expected->parameters()[p].grad()), 1e-4);
  }
}

TEST(ChannelsLast, KeepsTensorsAndValues) {
  auto model = resnet18(1);
  const auto before = resnet18(1)->parameters();
  const auto parameters = model->parameters();
  const torch::optim::SGD sgd{parameters, torch::optim::SGDOptions(0.1)};
  to_channels_last(*model);
  int reordered = 0;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    EXPECT_TRUE(parameters[p].is_same(model->parameters()[p]));
    EXPECT_TRUE(parameters[p].equal(before[p]));
    EXPECT_TRUE(parameters[p].requires_grad());
    if (parameters[p].dim() != 4) continue;
    EXPECT_EQ(parameters[p].suggest_memory_format(), kChannelsLast);  // 1x1 weights, too
    ++reordered;
  }
  EXPECT_EQ(reordered, 20);
}

TEST(ChannelsLast, RefusesAParameterWithAGradient) {
  auto model = small_resnet(1);
  loss_of(model, images_of(2)).backward();
  EXPECT_THAT(message_of<UsageError>([&] { to_channels_last(*model); }),
              testing::HasSubstr("Parameter 'conv1.weight' has a gradient already"));
}

// Buckets hold gradients in the order of their parameters' memory.
TEST(ChannelsLast, IsAveragedOverRanks) {
  on_ranks([](Communicator& communicator) {
    auto alone = on_device(small_resnet(1));
    auto together = on_device(small_resnet(1));
    to_channels_last(*together);
    GradientSynchronizer synchronizer{*together, communicator, {.buckets = {.bucket_bytes = 1 << 16}}};
    const auto rank = static_cast<std::uint64_t>(communicator.rank());
    for (std::uint64_t step = 0; step < 2; ++step) {  // planned anew after the first
      alone->zero_grad();
      synchronizer.zero_grad();
      auto batch = images_of(100 * step + rank);
      batch = {batch.images.to(device()), batch.labels.to(device())};
      loss_of(alone, batch).backward();
      batch.images = batch.images.contiguous(kChannelsLast);
      loss_of(together, batch).backward();
      synchronizer.wait();
      for (std::size_t p = 0; p < alone->parameters().size(); ++p) {
        const auto expected = alone->parameters()[p].grad().contiguous().clone();
        communicator.all_reduce(expected, ReduceOp::average).wait();
        const auto parameter = together->parameters()[p];
        EXPECT_LT(relative_difference(parameter.grad(), expected), 1e-4);
        EXPECT_EQ(parameter.grad().strides(), parameter.strides());
      }
    }
  });
}

}  // namespace
}  // namespace libtrain
