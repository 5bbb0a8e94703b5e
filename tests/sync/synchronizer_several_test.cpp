// Several at once: backward() inside of backward(), backward() on two threads, two synchronizers under one backward(),
// two trainings in one process; on ranks as threads and under mpirun.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <libtrain/base/error.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>

#include <tests/support/counting_format.hpp>
#include <tests/support/device.hpp>
#include <tests/support/expect_told.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/models.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/support/pair.hpp>
#include <tests/support/parity.hpp>
#include <tests/support/training.hpp>

namespace libtrain {
namespace {

using test::CountingFormat;
using test::device;
using test::expect_all;
using test::expect_told;
using test::is_odd_one;
using test::kTenSeconds;
using test::mean_over_ranks;
using test::message_of;
using test::on_fresh_ranks;
using test::on_ranks;
using test::Pair;
using test::Recipe;
using test::TestModel;
using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What is run again in backward(), and not kept.
at::Tensor segment(const at::Tensor& x, const at::Tensor& weight) {
  return x * weight * 2;
}

// Checkpointing with the weight as an input, which the graph shows.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight) {
    context->save_for_backward({x, weight});
    return segment(x, weight);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::AutoGradMode with_gradients{true};
    const at::Tensor x = saved[0].detach().requires_grad_(true);
    const at::Tensor weight = saved[1].detach().requires_grad_(true);
    return torch::autograd::grad({segment(x, weight)}, {x, weight}, {gradients[0]});
  }
};

// Checkpointing with a backward() that reaches the weight itself, which the graph does not show: what
// torch.utils.checkpoint does with use_reentrant=True. The weight must outlive backward().
struct Reentrant : torch::autograd::Function<Reentrant> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor* weight) {
    context->save_for_backward({x});
    context->saved_data["weight"] = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(weight));
    return segment(x, *weight);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto address = static_cast<std::intptr_t>(context->saved_data["weight"].toInt());
    const auto* weight = reinterpret_cast<const at::Tensor*>(address);
    const at::AutoGradMode with_gradients{true};
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_(true);
    torch::autograd::backward({segment(x, *weight)}, {gradients[0]});
    return {x.grad(), at::Tensor()};
  }
};

// Ranks with an odd number leave `left` out. With weights of ones the gradients are 4 x where there are two segments,
// and 2 x where there is one.
bool uses_left(int rank) {
  return rank % 2 == 0;
}

at::Tensor input_of(const Communicator& communicator) {
  return torch::full({4}, communicator.rank() + 1.0, device()).requires_grad_(true);
}

at::Tensor loss_with_recomputed(const Pair& model, const Communicator& communicator) {
  auto x = input_of(communicator);
  if (uses_left(communicator.rank())) x = Recomputed::apply(x, model.left);
  return Recomputed::apply(x, model.right).sum();
}

at::Tensor loss_with_reentrant(const Pair& model, const Communicator& communicator) {
  auto x = input_of(communicator);
  if (uses_left(communicator.rank())) x = Reentrant::apply(x, &model.left);
  return Reentrant::apply(x, &model.right).sum();
}

void expect_gradients_of_segments(const Pair& model, const Communicator& communicator) {
  const auto of_left = [](int rank) { return uses_left(rank) ? 4 * (rank + 1) : 0; };
  const auto of_right = [](int rank) { return (uses_left(rank) ? 4 : 2) * (rank + 1); };
  expect_all(model.left.grad(), mean_over_ranks(communicator.world_size(), of_left), "left");
  expect_all(model.right.grad(), mean_over_ranks(communicator.world_size(), of_right), "right");
}

TEST(SynchronizerCheckpoints, FindUnusedSeesWeightsThatAreInputs) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    const auto format = std::make_shared<CountingFormat>();
    GradientSynchronizer synchronizer{
        model, communicator, {.buckets = {16, 16}, .unused = UnusedParameters::allowed, .wire_format = format}};
    for (int round = 1; round <= 3; ++round) {
      const auto loss = loss_with_recomputed(model, communicator);
      synchronizer.find_unused({loss});
      loss.backward();
      EXPECT_EQ(format->started(), 2 * round) << "a bucket waits for wait()";
      EXPECT_TRUE(synchronizer.wait());
      expect_gradients_of_segments(model, communicator);
      synchronizer.zero_grad();
    }
  });
}

TEST(SynchronizerCheckpoints, MayLeaveParametersOutOfNestedPasses) {
  on_ranks([](Communicator& communicator) {
    for (const bool declares : {false, true}) {
      Pair model;
      GradientSynchronizer synchronizer{
          model, communicator, {.buckets = {16, 16}, .unused = UnusedParameters::allowed}};
      if (declares && !uses_left(communicator.rank())) synchronizer.declare_unused({"left"});
      for (int round = 0; round < 3; ++round) {
        loss_with_reentrant(model, communicator).backward();
        EXPECT_TRUE(synchronizer.wait());
        expect_gradients_of_segments(model, communicator);
        synchronizer.zero_grad();
      }
    }
  });
}

// It walks the graph, which does not show them.
TEST(SynchronizerCheckpoints, FindUnusedIsRefusedWithNestedPasses) {
  on_fresh_ranks(1, kTenSeconds, [](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.buckets = {16, 16}, .unused = UnusedParameters::allowed}};
    const auto run_backward = [&](const at::Tensor& loss) {
      synchronizer.find_unused({loss});
      loss.backward();
    };
    expect_told(communicator, [&] { run_backward(loss_with_reentrant(model, communicator)); },
                {"'right'", "received a gradient although find_unused()"});
    synchronizer.zero_grad();
    const auto first_is_nested = (Reentrant::apply(input_of(communicator), &model.left) * model.right).sum();
    EXPECT_THAT(message_of<UsageError>([&] { run_backward(first_is_nested); }),
                AllOf(HasSubstr("'left'"), HasSubstr("received a gradient although find_unused()")));
    synchronizer.zero_grad();
    loss_with_reentrant(model, communicator).backward();
    EXPECT_TRUE(synchronizer.wait());
    expect_gradients_of_segments(model, communicator);
  });
}

// The identity, whose gradient waits until the other thread's has come as far.
struct Meeting : torch::autograd::Function<Meeting> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, std::latch* both) {
    context->saved_data["both"] = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(both));
    return input.clone();
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto address = static_cast<std::intptr_t>(context->saved_data["both"].toInt());
    reinterpret_cast<std::latch*>(address)->arrive_and_wait();
    return {gradients[0], at::Tensor()};
  }
};

// backward() of each half of the module, on a thread of its own.
void run_backward_of_halves(const Pair& model, double of_left, double of_right) {
  std::latch both{2};
  const auto run = [&](const at::Tensor& half, double gradient) {
    Meeting::apply(half.sum() * gradient, &both).backward();
  };
  auto left = std::async(std::launch::async, [&] { run(model.left, of_left); });
  auto right = std::async(std::launch::async, [&] { run(model.right, of_right); });
  left.get();
  right.get();
}

// Autograd has one thread for all backward passes on a device: neither half could wait there for the other.
TEST(HostOnlySynchronizerThreads, HalvesOfAModuleMayGetTheirGradientsOnTwoThreads) {
  on_ranks([](Communicator& communicator) {
    const double mean = mean_over_ranks(communicator.world_size(), [](int rank) { return rank + 1; });
    for (const auto limits : {BucketLimits{}, BucketLimits{16, 16}, BucketLimits{.alone_bytes = 1}}) {
      Pair model;
      GradientSynchronizer synchronizer{model, communicator, {.buckets = limits}};
      for (int round = 0; round < 8; ++round) {
        const int passes = 1 + round % 2;
        for (int pass = 1; pass <= passes; ++pass) {
          std::optional<GradientSynchronizer::NoSync> guard;
          if (pass < passes) guard.emplace(synchronizer.no_sync());
          run_backward_of_halves(model, communicator.rank() + 1, 10);
        }
        EXPECT_TRUE(synchronizer.wait());
        expect_all(model.left.grad(), passes * mean, "left");
        expect_all(model.right.grad(), 10 * passes, "right");
        synchronizer.zero_grad();
      }
    }
  });
}

// Each rank is in two groups, of which the second has every other rank. Which device they have is not known
// on threads that the test has started.
TEST(HostOnlySynchronizerThreads, TwoThreadsMayTrainModulesOfTheirOwnAtOnce) {
  on_ranks([](Communicator& communicator) {
    const std::shared_ptr<Communicator> groups[] = {communicator.split(0, communicator.rank()),
                                                    communicator.split(communicator.rank() % 2, communicator.rank())};
    const Recipe recipes[] = {
        {.model = "mlp", .type = at::kDouble, .optimizer = "sgd"},
        {.model = "tied", .type = at::kDouble, .optimizer = "adamw", .regime = test::Regime::accumulation}};
    const auto train = [&](std::size_t index) {
      const auto together = test::train_together(recipes[index], *groups[index]);
      const auto alone = test::train_alone(recipes[index], groups[index]->world_size());
      EXPECT_LE(test::deviation_of(together.weights, alone.weights), 1e-7) << recipes[index].model;
    };
    auto first = std::async(std::launch::async, train, std::size_t{0});
    auto second = std::async(std::launch::async, train, std::size_t{1});
    first.get();
    second.get();
  });
}

// On a device, all ranks must call the collectives of several communicators in one order.
TEST(HostOnlySynchronizerPairs, ModulesWithCommunicatorsOfTheirOwnMayBeReachedInAnyOrder) {
  on_ranks([](Communicator& communicator) {
    const auto of_first = communicator.split(0, communicator.rank());
    const auto of_second = communicator.split(0, communicator.rank());
    Pair first;
    Pair second;
    GradientSynchronizer first_synchronizer{first, *of_first, {.buckets = {16, 16}}};
    GradientSynchronizer second_synchronizer{second, *of_second, {.buckets = {16, 16}}};
    const double mine = communicator.rank() + 1;
    const double mean = mean_over_ranks(communicator.world_size(), [](int rank) { return rank + 1; });
    for (int round = 0; round < 3; ++round) {
      // Autograd runs later operations first.
      const bool first_comes_first = is_odd_one(communicator);
      const auto later = first_comes_first ? second.loss(3, mine) : first.loss(mine, 2);
      (later + (first_comes_first ? first.loss(mine, 2) : second.loss(3, mine))).backward();
      EXPECT_TRUE(first_synchronizer.wait());
      EXPECT_TRUE(second_synchronizer.wait());
      expect_all(first.left.grad(), mean, "left of the first");
      expect_all(first.right.grad(), 2, "right of the first");
      expect_all(second.left.grad(), 3, "left of the second");
      expect_all(second.right.grad(), mean, "right of the second");
      first_synchronizer.zero_grad();
      second_synchronizer.zero_grad();
    }
  });
}

// The discriminator sees what the generator has made of the noise, and some of the noise as it is.
struct Gan {
  TestModel generator = test::make_model("mlp", at::kDouble, 1);
  TestModel discriminator = test::make_model("mlp", at::kDouble, 2);
  torch::optim::Adam generator_optimizer{generator.module->parameters(), torch::optim::AdamOptions(0.01).eps(1e-3)};
  torch::optim::SGD discriminator_optimizer{discriminator.module->parameters(),
                                            torch::optim::SGDOptions(0.03).momentum(0.9)};

  at::Tensor fake(const at::Tensor& noise) const {
    return torch::cat({generator.forward(noise), noise.narrow(1, 0, 2)}, 1);
  }
  at::Tensor loss(const at::Tensor& x, double wanted) const {
    return (discriminator.forward(x) - wanted).pow(2).mean();
  }
};

// In every other step one backward() trains both, in the others the discriminator alone. On `count` of `all` rows.
void train(Gan& gan, std::int64_t all, std::int64_t begin, std::int64_t count,
           const std::function<void()>& wait_for_generator, const std::function<void()>& wait_for_discriminator) {
  for (std::uint64_t step = 0; step < 6; ++step) {
    const auto inputs_of = [&](std::uint64_t seed) {
      return test::make_batch(gan.generator, all, at::kDouble, seed).inputs.narrow(0, begin, count);
    };
    const auto noise = inputs_of(2 * step);
    const auto real = inputs_of(2 * step + 1);
    gan.generator_optimizer.zero_grad();
    gan.discriminator_optimizer.zero_grad();
    if (step % 2 == 0) {
      (gan.loss(gan.fake(noise), 1) + gan.loss(real, 1)).backward();
      wait_for_generator();
      gan.generator_optimizer.step();
    } else {
      (gan.loss(gan.fake(noise).detach(), 0) + gan.loss(real, 1)).backward();
    }
    wait_for_discriminator();
    gan.discriminator_optimizer.step();
  }
}

TEST(SynchronizerPairs, OneBackwardMayTrainTwoModulesAsOneProcessDoes) {
  on_ranks([](Communicator& communicator) {
    constexpr std::int64_t kRows = 3;
    const std::int64_t all = kRows * communicator.world_size();
    Gan alone;
    train(alone, all, 0, all, [] {}, [] {});
    const auto split = communicator.split(0, communicator.rank());
    // Of which some have a gradient alone.
    const SynchronizerOptions small{.buckets = {.bucket_bytes = 400, .first_bucket_bytes = 100, .alone_bytes = 2000}};
    for (auto* const of_discriminator : {&communicator, split.get()}) {
      Gan gan;
      GradientSynchronizer generator{*gan.generator.module, communicator, small};
      GradientSynchronizer discriminator{*gan.discriminator.module, *of_discriminator, small};
      const auto begin = kRows * communicator.rank();
      train(gan, all, begin, kRows, [&] { generator.wait(); }, [&] { discriminator.wait(); });
      for (const auto model : {&Gan::generator, &Gan::discriminator}) {
        const auto wanted = test::flat_weights(*(alone.*model).module);
        EXPECT_LE(test::deviation_of(test::flat_weights(*(gan.*model).module), wanted), 1e-7);
      }
    }
  });
}

}  // namespace
}  // namespace libtrain
