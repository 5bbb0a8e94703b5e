#include <libtrain/train/autocast.hpp>

#include <stdexcept>
#include <thread>

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain {
namespace {

using libtrain::test::message_of;

at::ScalarType type_of_product() {
  const auto matrix = at::ones({2, 2});
  return at::mm(matrix, matrix).scalar_type();
}

struct State {
  bool enabled = at::autocast::is_autocast_enabled(at::kCPU);
  at::ScalarType type = at::autocast::get_autocast_dtype(at::kCPU);
  bool cached = at::autocast::is_autocast_cache_enabled();

  bool operator==(const State&) const = default;
};

TEST(Autocast, ComputesProductsInItsTypeAndLossesInFloat32) {
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const Autocast autocast{at::kCPU, {.type = type}};
    EXPECT_EQ(type_of_product(), type);
    const auto logits = at::ones({2, 3}, type);
    EXPECT_EQ(torch::nll_loss(at::log_softmax(logits, 1), at::zeros({2}, at::kLong)).scalar_type(), at::kFloat);
  }
  EXPECT_EQ(type_of_product(), at::kFloat);
}

TEST(Autocast, LeavesParametersAndGradientsInFloat32) {
  torch::nn::Linear linear{3, 2};
  at::Tensor loss;
  {
    const Autocast autocast{at::kCPU};
    const auto output = linear->forward(at::ones({4, 3}));
    EXPECT_EQ(output.scalar_type(), at::kBFloat16);
    loss = torch::mse_loss(output, at::zeros({4, 2}));
  }
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  loss.backward();
  EXPECT_EQ(linear->weight.scalar_type(), at::kFloat);
  EXPECT_EQ(linear->weight.grad().scalar_type(), at::kFloat);
}

TEST(Autocast, RestoresWhatItFoundAfterAnException) {
  const State before;
  try {
    const Autocast autocast{at::kCPU, {.type = at::kHalf, .cache_weights = false}};
    EXPECT_FALSE(State().cached);
    throw std::runtime_error("left");
  } catch (const std::runtime_error&) {
    EXPECT_EQ(State(), before);
  }
}

TEST(Autocast, Nests) {
  const State before;
  {
    const Autocast outer{at::kCPU, {.type = at::kBFloat16}};
    {
      const Autocast off{at::kCPU, {.type = at::kFloat}};
      EXPECT_EQ(type_of_product(), at::kFloat);
      {
        const Autocast half{at::kCPU, {.type = at::kHalf}};
        EXPECT_EQ(type_of_product(), at::kHalf);
      }
      EXPECT_EQ(type_of_product(), at::kFloat);
    }
    EXPECT_EQ(type_of_product(), at::kBFloat16);
  }
  EXPECT_EQ(State(), before);
}

// LibTorch keeps one cast per weight, whatever its type.
TEST(Autocast, DoesNotFindTheCastOfAnotherType) {
  const auto weight = at::ones({2, 3}).requires_grad_();
  const auto type = [&] { return at::linear(at::ones({1, 3}), weight).scalar_type(); };
  const Autocast outer{at::kCPU, {.type = at::kBFloat16}};
  EXPECT_EQ(type(), at::kBFloat16);
  {
    const Autocast inner{at::kCPU, {.type = at::kHalf}};
    EXPECT_EQ(type(), at::kHalf);
  }
  EXPECT_EQ(type(), at::kBFloat16);
}

TEST(Autocast, KeepsCastsOfWeightsUntilTheOutermostScopeEnds) {
  const auto weight = at::ones({2, 2}).requires_grad_();
  const auto product = [&] { return at::linear(at::eye(2), weight).to(at::kFloat); };
  const auto set_weights = [&](double value) {
    const torch::NoGradGuard no_grad;
    weight.fill_(value);
  };
  {
    const Autocast outer{at::kCPU};
    EXPECT_TRUE(product().equal(at::full({2, 2}, 1.0)));
    set_weights(2);
    {
      const Autocast inner{at::kCPU};
      EXPECT_TRUE(product().equal(at::full({2, 2}, 1.0)));
    }
    EXPECT_TRUE(product().equal(at::full({2, 2}, 1.0)));
    const Autocast uncached{at::kCPU, {.cache_weights = false}};
    EXPECT_TRUE(product().equal(at::full({2, 2}, 2.0)));
  }
  const Autocast next{at::kCPU};
  EXPECT_TRUE(product().equal(at::full({2, 2}, 2.0)));
}

TEST(Autocast, DoesNotReachOtherThreads) {
  const Autocast autocast{at::kCPU};
  auto type = at::kBFloat16;
  std::thread([&] { type = type_of_product(); }).join();
  EXPECT_EQ(type, at::kFloat);
}

TEST(Autocast, RefusesOtherTypesAndDevices) {
  const State before;
  EXPECT_THAT(message_of<UsageError>([] { const Autocast autocast(at::kCPU, {.type = at::kDouble}); }),
              testing::HasSubstr("AutocastOptions::type is Double"));
  EXPECT_THAT(message_of<UsageError>([] { const Autocast autocast(c10::Device(c10::kMeta)); }),
              testing::HasSubstr("no autocast for device type 'meta'"));
  EXPECT_EQ(State(), before);
}

}  // namespace
}  // namespace libtrain
