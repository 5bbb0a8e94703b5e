// Large gradients that are reduced where autograd leaves them, on ranks as threads and under mpirun. The memory that
// autograd is given for them is that of the CPU's allocator: how it is given is tested on the host alone.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn.h>

#include <libtrain/base/trace.hpp>
#include <libtrain/comm/detail/single/single_communicator.hpp>
#include <libtrain/sync/detail/gradient_memory/gradient_blocks.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>

#include <tests/support/device.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/support/pair.hpp>

namespace libtrain {
namespace {

using test::device;
using test::expect_all;
using test::mean_over_ranks;
using test::on_ranks;
using test::Pair;

constexpr BucketLimits kAlone{.alone_bytes = 1};

// Counts the gradients that were copied.
class CopyCounter : public TraceSink {
 public:
  void span(std::string_view, std::string_view name, Clock::time_point, Clock::time_point,
            std::string_view) noexcept override {
    if (name == "copy gradient") ++copies_;
  }

  int since_last_asked() { return copies_.exchange(0); }

 private:
  std::atomic<int> copies_ = 0;
};

// Three layers of one size, so that blocks of that size are told apart, and a scratch block more is wanted at times.
torch::nn::Sequential layers() {
  return torch::nn::Sequential(torch::nn::Linear(8, 8), torch::nn::ReLU(), torch::nn::Linear(8, 8), torch::nn::ReLU(),
                               torch::nn::Linear(8, 8));
}

void backward(torch::nn::Sequential& model) {
  model->forward(torch::ones({4, 8})).square().sum().backward();
}

TEST(HostOnlyGradientBlocks, NothingIsCopiedButWhatCameBeforeTheFirstHook) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    CopyCounter copies;
    auto model = layers();
    GradientSynchronizer synchronizer{*model, communicator, {.buckets = kAlone, .trace = &copies}};
    for (int round = 0; round < 4; ++round) {
      backward(model);
      synchronizer.wait();
      synchronizer.zero_grad();
      // The last layer's function makes two gradients before autograd calls any hook.
      EXPECT_LE(copies.since_last_asked(), 2) << "round " << round;
    }
  });
}

TEST(HostOnlyGradientBlocks, AreCopiedWhereBucketsAreShared) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    CopyCounter copies;
    auto model = layers();
    GradientSynchronizer synchronizer{*model, communicator, {.trace = &copies}};
    backward(model);
    synchronizer.wait();
    EXPECT_EQ(copies.since_last_asked(), 6);
  });
}

// What autograd accumulates may still be on its way to another function, as a view or as it is.
TEST(GradientBlocks, GradientsThatTheGraphStillNeedsAreCopied) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.buckets = kAlone}};
    const double mean = mean_over_ranks(communicator.world_size(), [](int peer) { return peer + 1; });
    for (int round = 0; round < 4; ++round) {
      const auto factor = torch::full({2, 2}, communicator.rank() + 1.0, device());
      // The sum's gradient reaches `left` at once, and `right` after many functions more.
      auto detour = model.right.view({2, 2});
      for (int step = 0; step < 20; ++step) detour = detour * 1.0;
      const auto direct = round % 2 == 0 ? model.left.view({2, 2}) : model.left.reshape({2, 2}) * 1.0;
      ((detour + direct) * factor).sum().backward();
      synchronizer.wait();
      expect_all(model.left.grad(), mean, "left");
      expect_all(model.right.grad(), mean, "right");
      synchronizer.zero_grad();
    }
  });
}

// In every round a hook keeps this rank's gradient of `left` in `kept`, where averaging must not reach it.
void expect_kept_is_own(Communicator& communicator, const Pair& model, GradientSynchronizer& synchronizer,
                        const at::Tensor& kept) {
  const double own = communicator.rank() + 1.0;
  for (int round = 0; round < 3; ++round) {
    (model.left * torch::full({4}, own, device())).sum().add(model.right.sum()).backward();
    synchronizer.wait();
    expect_all(kept, own, "kept by the hook");
    expect_all(model.left.grad(), mean_over_ranks(communicator.world_size(), [](int peer) { return peer + 1; }));
    synchronizer.zero_grad();
  }
}

TEST(GradientBlocks, WhatAHookKeepsStaysThisRanksOwn) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    at::Tensor kept;
    model.left.register_hook([&](const at::Tensor& gradient) { kept = gradient; });
    GradientSynchronizer synchronizer{model, communicator, {.buckets = kAlone}};
    expect_kept_is_own(communicator, model, synchronizer, kept);
  });
}

// Both leaves get the same memory from autograd, once as a view: averaging in place would do it twice.
TEST(GradientBlocks, GradientsThatShareMemoryAreAveragedOnce) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.buckets = kAlone}};
    const double rank = communicator.rank();
    for (int round = 0; round < 3; ++round) {
      for (const bool left_is_view : {true, false}) {
        const auto sum = left_is_view
                             ? model.left.view({2, 2}) + model.right.detach().view({2, 2}) + model.right.view({2, 2})
                             : (model.right.view({4}) + model.left).view({2, 2});
        (sum * torch::full({2, 2}, rank + 1, device())).sum().backward();
        synchronizer.wait();
        const auto mean = mean_over_ranks(communicator.world_size(), [](int peer) { return peer + 1; });
        expect_all(model.left.grad(), mean, "left");
        expect_all(model.right.grad(), mean, "right");
        EXPECT_FALSE(model.left.grad().storage().is_alias_of(model.right.grad().storage()) &&
                     communicator.world_size() > 1);
        synchronizer.zero_grad();
      }
    }
  });
}

TEST(GradientBlocks, AccumulateInPlace) {
  on_ranks([](Communicator& communicator) {
    CopyCounter copies;
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.buckets = kAlone, .trace = &copies}};
    const double rank = communicator.rank();
    for (int round = 0; round < 3; ++round) {
      {
        const auto guard = synchronizer.no_sync();
        model.loss(rank, 1).backward();
      }
      model.loss(rank, 2).backward();
      synchronizer.wait();
      expect_all(model.left.grad(), 2 * mean_over_ranks(communicator.world_size(), [](int peer) { return peer; }));
      expect_all(model.right.grad(), 3);
      synchronizer.zero_grad();
    }
  });
}

// Gradients that were not zeroed grow from round to round, in the blocks where they lie.
TEST(GradientBlocks, KeepWhatWasNotZeroed) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.buckets = kAlone}};
    for (int round = 1; round <= 3; ++round) {
      model.loss(1, 2).backward();
      synchronizer.wait();
      expect_all(model.left.grad(), round);
      expect_all(model.right.grad(), 2 * round);
    }
  });
}

TEST(GradientBlocks, GradientsOutliveTheirSynchronizerAndCommunicator) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    const auto ours = communicator.split(0, communicator.rank());
    std::optional<GradientSynchronizer> synchronizer;
    synchronizer.emplace(model, *ours, SynchronizerOptions{.buckets = kAlone});
    for (int round = 0; round < 2; ++round) {
      synchronizer->zero_grad();
      model.loss(3, 4).backward();
      synchronizer->wait();
    }
    synchronizer.reset();
    expect_all(model.left.grad(), 3);
    model.loss(1, 1).backward();
    expect_all(model.left.grad(), 4);
    expect_all(model.right.grad(), 5);
  });
}

TEST(GradientBlocks, AParameterWithoutAGradientGetsTheOthersAverage) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.buckets = kAlone, .unused = UnusedParameters::allowed}};
    const bool uses_left = communicator.rank() == 0;
    for (int round = 0; round < 3; ++round) {
      (uses_left ? model.loss(6, 1) : model.right.sum()).backward();
      synchronizer.wait();
      expect_all(model.left.grad(), 6.0 / communicator.world_size());
      synchronizer.zero_grad();
    }
  });
}

TEST(HostOnlyGradientBlocks, ServeRequestsOfAGradientsSizeWhileTheyAreOpen) {
  on_ranks([](Communicator& communicator) {
    const auto blocks = std::make_shared<detail::GradientBlocks>(communicator);
    constexpr std::int64_t kElements = 1000;
    blocks->add(kElements * sizeof(float));
    blocks->make_all();
    EXPECT_FALSE(blocks->block_of(torch::empty({kElements})).defined());
    blocks->open();
    {
      std::vector<at::Tensor> tensors;
      int in_blocks = 0;
      for (int count = 0; count < 10; ++count) {
        tensors.push_back(torch::full({kElements}, count, torch::kFloat));
        in_blocks += blocks->block_of(tensors.back()).defined() ? 1 : 0;
      }
      EXPECT_EQ(in_blocks, 2) << "one for the gradient and one for scratch, not more";
      for (int count = 0; count < 10; ++count) expect_all(tensors[static_cast<std::size_t>(count)], count);
      EXPECT_EQ(blocks->block_of(tensors.front()).numel(), kElements * 4);
      EXPECT_FALSE(blocks->block_of(torch::empty({kElements + 1})).defined());
      EXPECT_FALSE(blocks->block_of(tensors.front().slice(0, 0, 10)).defined()) << "a part of a block is none";
    }
    EXPECT_TRUE(blocks->block_of(torch::empty({kElements})).defined()) << "blocks come back";
    blocks->close();
    EXPECT_FALSE(blocks->block_of(torch::empty({kElements})).defined());
  });
}

// A hook behind the synchronizer's gets what autograd accumulated, which the gradient has become.
class KeepingHook : public torch::autograd::FunctionPostHook {
 public:
  explicit KeepingHook(at::Tensor& kept) : kept_(kept) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& inputs) override {
    kept_ = inputs.front();
    return outputs;
  }

 private:
  at::Tensor& kept_;
};

TEST(GradientBlocks, WhatALaterHookOfAutogradKeepsStaysThisRanksOwn) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.buckets = kAlone}};
    at::Tensor kept;
    torch::autograd::impl::grad_accumulator(model.left)->add_post_hook(std::make_unique<KeepingHook>(kept));
    expect_kept_is_own(communicator, model, synchronizer, kept);
  });
}

TEST(HostOnlyGradientBlocks, CloseWithTheGuardAndWithZeroGrad) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    CopyCounter copies;
    auto model = layers();
    GradientSynchronizer synchronizer{*model, communicator, {.buckets = kAlone, .trace = &copies}};
    std::vector<at::Tensor> hoard;  // of a weight's size, made outside of backward passes
    for (int round = 0; round < 4; ++round) {
      {
        const auto guard = synchronizer.no_sync();
        backward(model);
      }
      for (int count = 0; count < 5; ++count) hoard.push_back(torch::empty({8, 8}));
      synchronizer.zero_grad();
      for (int count = 0; count < 5; ++count) hoard.push_back(torch::empty({8, 8}));
      copies.since_last_asked();
      backward(model);
      synchronizer.wait();
      EXPECT_LE(copies.since_last_asked(), 2) << "round " << round;
      synchronizer.zero_grad();
    }
  });
}

// Knows how much of the memory that it has given is still in use.
class CountingCommunicator : public detail::SingleCommunicator {
 public:
  at::Tensor allocate(std::int64_t elements, at::ScalarType type) override {
    const auto memory = detail::SingleCommunicator::allocate(elements, type);
    const auto bytes = memory.nbytes();
    *bytes_in_use_ += bytes;
    const auto give_back = [memory, bytes, in_use = bytes_in_use_](void*) { *in_use -= bytes; };
    return at::from_blob(memory.mutable_data_ptr(), memory.sizes(), give_back, memory.options());
  }

  std::size_t bytes_in_use() const { return *bytes_in_use_; }

 private:
  const std::shared_ptr<std::size_t> bytes_in_use_ = std::make_shared<std::size_t>(0);
};

TEST(HostOnlyGradientBlocks, AKeptGradientKeepsNoOthersMemory) {
  CountingCommunicator communicator;
  const auto blocks = std::make_shared<detail::GradientBlocks>(communicator);
  constexpr std::size_t kBytes = detail::GradientBlocks::kSlabBytes / 2;
  for (int count = 0; count < 4; ++count) blocks->add(kBytes);
  blocks->make_all();
  auto kept = blocks->take(kBytes);
  EXPECT_EQ(communicator.bytes_in_use(), 4 * kBytes);
  blocks->retire();
  EXPECT_EQ(communicator.bytes_in_use(), 2 * kBytes) << "two slabs of two blocks each: the other one goes";
  kept.fill_(7);
  expect_all(kept.slice(0, 0, 100), 7);
  kept.reset();
  EXPECT_EQ(communicator.bytes_in_use(), 0u);
}

// With gradients that are kept from round to round.
TEST(HostOnlyGradientBlocks, ManyKeptGradientsGiveTheirMemoryBack) {
  on_ranks([](Communicator& communicator) {
    const auto blocks = std::make_shared<detail::GradientBlocks>(communicator);
    blocks->add(4000);
    blocks->make_all();
    {
      std::vector<at::Tensor> kept;
      for (int round = 0; round < 5; ++round) kept.push_back(blocks->take(4000));
      for (std::size_t index = 0; index < kept.size(); ++index) kept[index].fill_(static_cast<int>(index));
      for (std::size_t index = 0; index < kept.size(); ++index) expect_all(kept[index], static_cast<double>(index));
    }
    std::vector<at::Tensor> again;
    for (int count = 0; count < 3; ++count) again.push_back(blocks->take(4000));
    for (const auto& block : again) EXPECT_EQ(block.numel(), 4000);
    blocks->retire();
  });
}

// A one-by-one convolution's gradient may have strides of its own in the dimensions of one element.
TEST(HostOnlyGradientBlocks, DimensionsOfOneElementDoNotMatter) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    CopyCounter copies;
    torch::nn::Sequential model{torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 1).bias(false)),
                                torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 1).bias(false)),
                                torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 1).bias(false))};
    GradientSynchronizer synchronizer{*model, communicator, {.buckets = kAlone, .trace = &copies}};
    const auto images = torch::ones({2, 4, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast);
    for (int round = 0; round < 3; ++round) {
      model->forward(images).square().sum().backward();
      synchronizer.wait();
      EXPECT_LE(copies.since_last_asked(), 1) << "round " << round;
      synchronizer.zero_grad();
    }
  });
}

TEST(HostOnlyGradientBlocks, DoNotLieInOtherBlocks) {
  on_ranks([](Communicator& communicator) {
    const auto large = std::make_shared<detail::GradientBlocks>(communicator);
    large->add(4000);
    large->make_all();
    large->open();
    {
      const auto small = std::make_shared<detail::GradientBlocks>(communicator);
      small->add(4000);
      small->make_all();
      EXPECT_FALSE(large->block_of(small->take(4000)).defined());
    }
    EXPECT_TRUE(large->block_of(torch::empty({1000})).defined());
  });
}

// What oneDNN uses for its scratch memory.
TEST(HostOnlyGradientBlocks, TheAllocatorsRawInterfaceTakesBothKindsOfMemory) {
  on_ranks([](Communicator& communicator) {
    const auto blocks = std::make_shared<detail::GradientBlocks>(communicator);
    blocks->add(4000);
    blocks->make_all();
    blocks->open();
    auto* const allocator = c10::GetCPUAllocator();
    for (int count = 0; count < 3; ++count) {
      void* const block = allocator->raw_allocate(4000);
      void* const ordinary = allocator->raw_allocate(4001);
      EXPECT_NE(block, nullptr);
      EXPECT_NE(ordinary, nullptr);
      allocator->raw_deallocate(block);
      allocator->raw_deallocate(ordinary);
    }
    blocks->close();
  });
}

}  // namespace
}  // namespace libtrain
