// Modules out of the ordinary: two that train each other, tied weights, checkpointing, odd layouts; on ranks as threads
// and under mpirun.

#include <cstdint>
#include <functional>
#include <memory>

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <libtrain/base/error.hpp>
#include <libtrain/comm/detail/single/single_communicator.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>

#include <tests/support/device.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/support/pair.hpp>

namespace libtrain {
namespace {

using test::device;
using test::expect_all;
using test::mean_rank_plus_one;
using test::on_device;
using test::on_ranks;
using test::Pair;
using ::testing::ElementsAre;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct HeldImpl : Pair {};
TORCH_MODULE(Held);

// However a program holds it.
TEST(SynchronizerModules, HoldersAndSharedPointersAreModules) {
  on_ranks([](Communicator& communicator) {
    const auto expect_averaged = [&](const Pair& model, GradientSynchronizer& synchronizer) {
      model.loss(communicator.rank() + 1, 1).backward();
      EXPECT_TRUE(synchronizer.wait());
      expect_all(model.left.grad(), mean_rank_plus_one(communicator), "left");
    };
    const Held holder;
    GradientSynchronizer of_holder{holder, communicator};
    expect_averaged(*holder, of_holder);
    const auto pointer = std::make_shared<Pair>();
    GradientSynchronizer of_pointer{pointer, communicator};
    expect_averaged(*pointer, of_pointer);
    auto layer = on_device(torch::nn::Linear{2, 3});
    const GradientSynchronizer of_layer{layer, communicator};
    EXPECT_EQ(of_layer.parameter_names().size(), 2u);
  });
}

TEST(SynchronizerModules, EmptyHoldersAndNullPointersAreRefused) {
  detail::SingleCommunicator communicator{device()};
  const Held holder{nullptr};
  EXPECT_THROW((GradientSynchronizer{holder, communicator}), UsageError);
  const std::shared_ptr<Pair> pointer;
  EXPECT_THROW((GradientSynchronizer{pointer, communicator}), UsageError);
}

constexpr int kSteps = 5;
constexpr std::int64_t kBatch = 3;

// Rows [begin, begin + count) of a table that depends on `step`, float64 [count, width].
at::Tensor rows(int step, std::int64_t begin, std::int64_t count, std::int64_t width) {
  const auto places = torch::arange(begin * width, (begin + count) * width, on_device(at::kDouble));
  return places.add(1000 * step).sin().view({count, width});
}

void fill(torch::nn::Module& module) {
  module.to(device(), at::kDouble);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : module.parameters()) {
    parameter.copy_(torch::arange(parameter.numel(), at::kDouble).cos().view(parameter.sizes()));
  }
}

struct Gan {
  Gan() {
    fill(*generator);
    fill(*discriminator);
  }

  at::Tensor discriminator_loss(int step, std::int64_t begin, std::int64_t count) {
    const auto real = discriminator(rows(step, begin, count, 3));
    const auto fake = discriminator(generator(rows(step + 100, begin, count, 2)).detach());
    return torch::softplus(-real).mean() + torch::softplus(fake).mean();
  }

  at::Tensor generator_loss(int step, std::int64_t begin, std::int64_t count) {
    return torch::softplus(-discriminator(generator(rows(step + 200, begin, count, 2)))).mean();
  }

  at::Tensor weights() const {
    std::vector<at::Tensor> all;
    for (const auto& parameter : generator->parameters()) all.push_back(parameter.detach().flatten());
    for (const auto& parameter : discriminator->parameters()) all.push_back(parameter.detach().flatten());
    return torch::cat(all);
  }

  torch::nn::Linear generator{2, 3};
  torch::nn::Linear discriminator{3, 1};
  torch::optim::Adam generator_optimizer{generator->parameters(), torch::optim::AdamOptions(0.05)};
  torch::optim::SGD discriminator_optimizer{discriminator->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)};
};

// The reference: plain LibTorch.
at::Tensor train_alone(int world_size) {
  Gan gan;
  for (int step = 0; step < kSteps; ++step) {
    gan.discriminator_optimizer.zero_grad();
    gan.discriminator_loss(step, 0, kBatch * world_size).backward();
    gan.discriminator_optimizer.step();
    gan.generator_optimizer.zero_grad();
    gan.generator_loss(step, 0, kBatch * world_size).backward();
    gan.generator_optimizer.step();
  }
  return gan.weights();
}

void require_grad(torch::nn::Module& module, bool requires_grad) {
  for (auto& parameter : module.parameters()) parameter.set_requires_grad(requires_grad);
}

// What keeps the generator's backward() from training the discriminator.
enum class Spared { under_no_sync, frozen };

at::Tensor train_together(Communicator& communicator, Spared how) {
  Gan gan;
  GradientSynchronizer generator{*gan.generator, communicator};
  GradientSynchronizer discriminator{*gan.discriminator, communicator};
  const auto begin = kBatch * communicator.rank();
  for (int step = 0; step < kSteps; ++step) {
    discriminator.zero_grad();  // what the generator's backward() has left, too
    gan.discriminator_loss(step, begin, kBatch).backward();
    discriminator.wait();
    gan.discriminator_optimizer.step();

    generator.zero_grad();
    if (how == Spared::under_no_sync) {
      const auto guard = discriminator.no_sync();
      gan.generator_loss(step, begin, kBatch).backward();
    } else {
      require_grad(*gan.discriminator, false);
      gan.generator_loss(step, begin, kBatch).backward();
      require_grad(*gan.discriminator, true);
    }
    generator.wait();
    gan.generator_optimizer.step();
  }
  return gan.weights();
}

TEST(SynchronizerModules, TwoModulesMayTrainEachOther) {
  on_ranks([](Communicator& communicator) {
    const auto wanted = train_alone(communicator.world_size());
    for (const auto how : {Spared::under_no_sync, Spared::frozen}) {
      EXPECT_TRUE(torch::allclose(train_together(communicator, how).cpu(), wanted.cpu(), 1e-7, 1e-9))
          << static_cast<int>(how);
    }
  });
}

TEST(SynchronizerModules, SharedParametersAreReducedOnce) {
  on_ranks([](Communicator& communicator) {
    const auto shared = torch::ones({4}, device());
    torch::nn::Module model{"model"};
    for (const char* name : {"encoder", "decoder"}) {
      const auto part = std::make_shared<torch::nn::Module>(name);
      part->register_parameter("weight", shared);
      model.register_module(name, part);
    }
    GradientSynchronizer synchronizer{model, communicator};
    EXPECT_THAT(synchronizer.parameter_names(), ElementsAre("encoder.weight"));
    for (int round = 0; round < 2; ++round) {
      const auto encoded = shared.sum() * (communicator.rank() + 1);
      (encoded + (shared * shared).sum() * 10).backward();
      EXPECT_TRUE(synchronizer.wait());
      expect_all(shared.grad(), mean_rank_plus_one(communicator) + 20, "shared");
      synchronizer.zero_grad();
    }
  });
}

using Segment = std::function<at::Tensor(const at::Tensor&)>;

// Keeps the segment's input only, and runs the segment again when its gradients are asked for: what
// torch.utils.checkpoint does with use_reentrant=True. The segment must outlive backward().
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const Segment* segment) {
    context->save_for_backward({input});
    context->saved_data["segment"] = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(segment));
    return (*segment)(input);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto address = static_cast<std::intptr_t>(context->saved_data["segment"].toInt());
    const auto* segment = reinterpret_cast<const Segment*>(address);
    const at::AutoGradMode with_gradients{true};
    const at::Tensor input = context->get_saved_variables()[0].detach().requires_grad_(true);
    torch::autograd::backward({(*segment)(input)}, {gradients[0]});
    return {input.grad(), at::Tensor()};
  }
};

at::Tensor checkpoint(const Segment& segment, const at::Tensor& input) {
  return Checkpoint::apply(input, &segment);
}

at::Tensor input_of(const Communicator& communicator) {
  return torch::full({4}, communicator.rank() + 1.0, device()).requires_grad_(true);
}

TEST(SynchronizerModules, CheckpointedSegmentsOverlapWhereEachParameterIsReachedOnce) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.buckets = {16, 16}}};
    const Segment first = [&](const at::Tensor& x) { return x * model.left; };
    const Segment second = [&](const at::Tensor& x) { return x * model.right * 2; };
    for (int round = 0; round < 3; ++round) {
      checkpoint(second, checkpoint(first, input_of(communicator))).sum().backward();
      EXPECT_TRUE(synchronizer.wait());
      expect_all(model.left.grad(), 2 * mean_rank_plus_one(communicator), "left");
      expect_all(model.right.grad(), 2 * mean_rank_plus_one(communicator), "right");
      synchronizer.zero_grad();
    }
  });
}

TEST(SynchronizerModules, CheckpointedSegmentsMayRepeatWithoutOverlap) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.overlap = Overlap::none}};
    const Segment segment = [&](const at::Tensor& x) { return x * model.left; };
    for (int round = 0; round < 3; ++round) {
      // x left^3 + right: the gradient at left = 1 is 3 x.
      auto x = input_of(communicator);
      for (int repetition = 0; repetition < 3; ++repetition) x = checkpoint(segment, x);
      (x.sum() + model.right.sum()).backward();
      EXPECT_TRUE(synchronizer.wait());
      expect_all(model.left.grad(), 3 * mean_rank_plus_one(communicator), "left");
      expect_all(model.right.grad(), 1, "right");
      synchronizer.zero_grad();
    }
  });
}

// Three rounds and steps of one parameter, of ones at first, whose gradient is 0, 1, 2, ... times the mean of rank + 1.
at::Tensor last_gradient_of(at::Tensor weight, Communicator& communicator) {
  torch::nn::Module model{"model"};
  model.register_parameter("weight", weight);
  GradientSynchronizer synchronizer{model, communicator};
  torch::optim::SGD optimizer{model.parameters(), torch::optim::SGDOptions(0.5)};
  const auto pattern = torch::arange(weight.numel(), on_device(at::kFloat)).view(weight.sizes());
  const auto wanted = pattern.cpu() * mean_rank_plus_one(communicator);
  at::Tensor gradient;
  for (int round = 1; round <= 3; ++round) {
    ((weight * pattern).sum() * (communicator.rank() + 1)).backward();
    EXPECT_TRUE(synchronizer.wait());
    gradient = weight.grad();
    EXPECT_TRUE(torch::allclose(gradient.cpu(), wanted, 1e-6, 1e-6));
    optimizer.step();
    EXPECT_TRUE(torch::allclose(weight.cpu(), 1 - 0.5 * round * wanted, 1e-5, 1e-5));
    synchronizer.zero_grad();
  }
  return gradient;
}

TEST(SynchronizerModules, ChannelsLastGradientsAreRightAndStayChannelsLast) {
  on_ranks([](Communicator& communicator) {
    const auto weight = torch::ones({2, 3, 2, 2}, device()).contiguous(at::MemoryFormat::ChannelsLast);
    EXPECT_TRUE(last_gradient_of(weight, communicator).is_contiguous(at::MemoryFormat::ChannelsLast));
  });
}

TEST(SynchronizerModules, TransposedParametersHaveTransposedGradients) {
  on_ranks([](Communicator& communicator) {
    const auto weight = torch::empty_strided({3, 4}, {1, 3}, device()).fill_(1);
    EXPECT_EQ(last_gradient_of(weight, communicator).strides(), weight.strides());
  });
}

TEST(SynchronizerModules, ParametersWithGapsHaveContiguousGradients) {
  on_ranks([](Communicator& communicator) {
    const auto weight = torch::empty_strided({3, 4}, {8, 2}, device()).fill_(1);
    EXPECT_TRUE(last_gradient_of(weight, communicator).is_contiguous());
  });
}

}  // namespace
}  // namespace libtrain
