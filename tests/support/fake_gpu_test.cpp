#include <tests/support/fake_gpu/fake_gpu.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <tests/support/fresh_seed.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::test {

namespace {

at::TensorOptions on_gpu(int index = 0) {
  return at::TensorOptions(at::kFloat).device(fake_gpu(index));
}

c10::impl::VirtualGuardImpl guard() {
  fake_gpu();
  return c10::impl::VirtualGuardImpl(at::kPrivateUse1);
}

c10::Stream current_stream(int index = 0) {
  return guard().getStream(fake_gpu(index));
}

c10::Stream another_stream(int index = 0) {
  return guard().getStreamFromGlobalPool(fake_gpu(index));
}

float item(const at::Tensor& tensor) {
  return tensor.item<float>();
}

FakeGpuCounts counts_of(const std::function<void()>& body) {
  const auto before = fake_gpu_counts();
  body();
  return fake_gpu_counts() - before;
}

}  // namespace

TEST(FakeGpuMemory, FaultsWhenTheHostReadsIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto tensor = at::zeros({4}, on_gpu());
  EXPECT_DEATH(
      {
        const auto value = *static_cast<const volatile float*>(tensor.const_data_ptr());
        std::exit(value == 0);
      },
      "");
}

TEST(FakeGpuMemory, IsAlignedAndFilledWithNaN) {
  const auto a = at::empty({3}, on_gpu());
  const auto b = at::empty({3}, on_gpu());
  for (const auto& tensor : {a, b}) EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 512, 0u);
  EXPECT_TRUE(a.isnan().all().item<bool>());
}

TEST(FakeGpuMemory, IsUsedAgainAtOnceByTheSameStream) {
  auto tensor = at::zeros({1000}, on_gpu());
  const auto* address = tensor.const_data_ptr();
  tensor.reset();
  EXPECT_EQ(at::empty({1000}, on_gpu()).const_data_ptr(), address);
}

TEST(FakeGpuMemory, IsNotUsedAgainByAnotherStream) {
  auto tensor = at::zeros({1001}, on_gpu());
  const auto* address = tensor.const_data_ptr();
  tensor.reset();
  const c10::StreamGuard on_other(another_stream());
  EXPECT_NE(at::empty({1001}, on_gpu()).const_data_ptr(), address);
}

// What a missing hold looks like: the work of the other stream finds the memory freed.
TEST(FakeGpuMemory, IsLostIfItsUseByAnotherStreamIsNotRecorded) {
  for (const bool recorded : {false, true}) {
    const auto stream = another_stream();
    auto source = at::ones({1000}, on_gpu());
    const auto target = at::zeros({1000}, on_gpu());
    current_stream().synchronize();
    {
      const BlockedStream blocked(stream);
      {
        const c10::StreamGuard on_stream(stream);
        at::Tensor(target).copy_(source);
      }
      if (recorded) source.record_stream(stream);
      source.reset();
      const auto next = at::zeros({1000}, on_gpu());
      current_stream().synchronize();
    }
    stream.synchronize();
    EXPECT_EQ(target.equal(at::ones({1000}, on_gpu())), recorded);
  }
}

TEST(FakeGpuMemory, OfPinnedTensorsIsKeptUntilCopiesHaveRun) {
  const auto target = at::zeros({1000}, on_gpu());
  auto source = at::ones({1000}).pin_memory();
  EXPECT_TRUE(source.is_pinned());
  const auto* address = source.const_data_ptr();
  at::Tensor other;
  {
    const BlockedStream blocked(current_stream());
    at::Tensor(target).copy_(source, /*non_blocking=*/true);
    source.reset();
    other = at::zeros({1000}).pin_memory();
    EXPECT_NE(other.const_data_ptr(), address);
  }
  EXPECT_TRUE(target.cpu().equal(at::ones({1000})));
  EXPECT_EQ(at::zeros({1000}).pin_memory().const_data_ptr(), address);
}

TEST(FakeGpuStream, RunsWorkLaterAndInOrder) {
  const auto tensor = at::ones({4}, on_gpu());
  {
    const BlockedStream blocked(current_stream());
    at::Tensor(tensor).mul_(3).add_(1);
    EXPECT_FALSE(current_stream().query());
  }
  EXPECT_EQ(item(tensor.sum()), 16);
  EXPECT_TRUE(current_stream().query());
}

TEST(FakeGpuStream, IsNotOrderedWithOtherStreamsButByEvents) {
  for (const bool ordered : {false, true}) {
    const auto other = another_stream();
    auto tensor = at::zeros({4}, on_gpu());
    auto seen = at::zeros({4}, on_gpu());
    auto copy_in_other = [&] {
      const c10::StreamGuard on_other(other);
      seen.copy_(tensor);
    };
    current_stream().synchronize();
    {
      const BlockedStream blocked(current_stream());
      tensor.fill_(1);
      c10::Event written(at::kPrivateUse1);
      written.record(current_stream());
      EXPECT_FALSE(written.query());
      if (ordered) written.block(other);
      copy_in_other();
      if (!ordered) other.synchronize();
    }
    other.synchronize();
    EXPECT_EQ(item(seen.sum()), ordered ? 4 : 0);
  }
}

TEST(FakeGpuEvent, MeasuresTime) {
  c10::Event first(at::kPrivateUse1, c10::EventFlag::BACKEND_DEFAULT);
  c10::Event second(at::kPrivateUse1, c10::EventFlag::BACKEND_DEFAULT);
  EXPECT_TRUE(first.query());
  first.record(current_stream());
  second.record(current_stream());
  second.synchronize();
  EXPECT_GE(first.elapsedTime(second), 0);
}

TEST(FakeGpuCopy, FromPageableMemoryTakesTheSourceAlong) {
  auto source = at::ones({8});
  auto target = at::zeros({8}, on_gpu());
  {
    const BlockedStream blocked(current_stream());
    target.copy_(source, /*non_blocking=*/true);
    source.zero_();
  }
  EXPECT_EQ(item(target.sum()), 8);
}

TEST(FakeGpuCopy, FromPinnedMemoryReadsTheSourceLater) {
  auto source = at::ones({8}).pin_memory();
  auto target = at::zeros({8}, on_gpu());
  {
    const BlockedStream blocked(current_stream());
    target.copy_(source, /*non_blocking=*/true);
    source.fill_(2);
  }
  EXPECT_EQ(item(target.sum()), 16);
}

TEST(FakeGpuCopy, ToPinnedMemoryDoesNotWait) {
  const auto source = at::ones({8}, on_gpu());
  auto target = at::zeros({8}).pin_memory();
  {
    const BlockedStream blocked(current_stream());
    target.copy_(source, /*non_blocking=*/true);
    EXPECT_EQ(item(target.sum()), 0);
  }
  current_stream().synchronize();
  EXPECT_EQ(item(target.sum()), 8);
}

TEST(FakeGpuCopy, BetweenDevicesIsOrderedOnBoth) {
  auto source = at::zeros({8}, on_gpu(1));
  {
    const BlockedStream blocked(current_stream(1));
    source.fill_(5);
    auto target = source.to(fake_gpu(2));
    EXPECT_FALSE(current_stream(2).query());
    source.fill_(7);
    source = target;
  }
  EXPECT_EQ(source.device(), fake_gpu(2));
  EXPECT_EQ(item(source.sum()), 40);
}

TEST(FakeGpuCounts, TellSynchronisationsAndOperations) {
  auto tensor = at::ones({8}, on_gpu());
  const auto other = at::ones({8}, on_gpu());
  auto pinned = at::zeros({8}).pin_memory();
  const auto expect = [](FakeGpuCounts expected, const std::function<void()>& body) {
    const auto counts = counts_of(body);
    EXPECT_EQ(counts.host_synchronizations, expected.host_synchronizations);
    EXPECT_EQ(counts.device_operations, expected.device_operations);
  };
  expect({0, 1}, [&] { tensor.add_(other); });
  expect({0, 1}, [&] { at::add_out(tensor, tensor, other); });
  expect({0, 1}, [&] { at::_foreach_mul_({tensor, other}, 2); });
  expect({0, 1}, [&] { at::_foreach_copy_({tensor}, {other}); });
  expect({0, 1}, [&] { at::_foreach_norm({tensor, other}); });
  expect({0, 1}, [&] { pinned.copy_(tensor, /*non_blocking=*/true); });
  expect({0, 0}, [&] { tensor.view({2, 4}).select(0, 1).t(); });
  expect({1, 1}, [&] { pinned.copy_(tensor); });
  expect({1, 1}, [&] { tensor.cpu(); });
  expect({1, 1}, [&] { tensor[0].item(); });
  expect({1, 1}, [&] { EXPECT_TRUE(tensor.equal(other)); });
  expect({1, 1}, [&] { EXPECT_EQ(tensor.nonzero().size(0), 8); });
  expect({1, 0}, [&] { current_stream().synchronize(); });
}

TEST(FakeGpuCounts, SynchronisationsCanBeForbidden) {
  const auto tensor = at::ones({1}, on_gpu());
  const NoHostSynchronization none;
  const auto message = message_of<c10::Error>([&] { tensor.item(); });
  EXPECT_NE(message.find("_local_scalar_dense"), std::string::npos) << message;
}

TEST(FakeGpuError, IsReportedByTheNextSynchronisation) {
  const auto table = at::zeros({4, 2}, on_gpu());
  const auto index = at::full({1}, 9, on_gpu().dtype(at::kLong));
  const auto row = table.index_select(0, index);
  EXPECT_THROW(current_stream().synchronize(), c10::Error);
  current_stream().synchronize();
}

TEST(FakeGpuError, OfWrongShapesIsReportedByTheCall) {
  EXPECT_THROW(at::mm(at::zeros({2, 3}, on_gpu()), at::zeros({4, 2}, on_gpu())), c10::Error);
  EXPECT_THROW(at::zeros({2}, on_gpu()).add_(at::zeros({2})), c10::Error);
  EXPECT_THROW(at::zeros({2}, on_gpu(0)).add_(at::zeros({2}, on_gpu(1))), c10::Error);
}

TEST(FakeGpuRandom, DependsOnTheSeedAlone) {
  const auto draw = [] {
    at::manual_seed(3);
    return std::pair{at::randn({100}, on_gpu()), at::randperm(10, on_gpu().dtype(at::kLong))};
  };
  const auto first = draw();
  const auto second = draw();
  EXPECT_TRUE(first.first.equal(second.first));
  EXPECT_TRUE(first.second.equal(second.second));
  EXPECT_NEAR(item(first.first.std()), 1, 0.3);
}

namespace {

class SmallNet : public torch::nn::Module {
 public:
  SmallNet() {
    conv_ = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).stride(2).padding(1)));
    norm_ = register_module("norm", torch::nn::BatchNorm2d(8));
    linear_ = register_module("linear", torch::nn::Linear(8, 10));
  }
  at::Tensor forward(const at::Tensor& input) {
    const auto features = torch::relu(norm_(conv_(input)));
    return linear_(torch::adaptive_avg_pool2d(torch::max_pool2d(features, 2), {1, 1}).flatten(1));
  }

 private:
  torch::nn::Conv2d conv_{nullptr};
  torch::nn::BatchNorm2d norm_{nullptr};
  torch::nn::Linear linear_{nullptr};
};

class AttentionNet : public torch::nn::Module {
 public:
  AttentionNet() {
    embedding_ = register_module("embedding", torch::nn::Embedding(20, 16));
    attention_ = register_module("attention", torch::nn::MultiheadAttention(16, 4));
    norm_ = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({16})));
    linear_ = register_module("linear", torch::nn::Linear(16, 10));
  }
  at::Tensor forward(const at::Tensor& tokens) {
    const auto input = embedding_(tokens.t());
    const auto attended = std::get<0>(attention_(input, input, input));
    return linear_(torch::gelu(norm_(input + attended)).mean(0));
  }

 private:
  torch::nn::Embedding embedding_{nullptr};
  torch::nn::MultiheadAttention attention_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear linear_{nullptr};
};

// The parameters, buffers and losses of a short training, on the CPU.
template <typename Net>
std::vector<at::Tensor> train(const at::Device& device, const at::Tensor& inputs) {
  at::manual_seed(1);
  Net net;
  net.to(device);
  torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const auto input = inputs.to(device);
  const auto labels = at::arange(inputs.size(0), at::kLong).remainder(10).to(device);
  std::vector<at::Tensor> results;
  for (int step = 0; step < 5; ++step) {
    sgd.zero_grad();
    const auto loss = torch::cross_entropy_loss(net.forward(input), labels);
    loss.backward();
    sgd.step();
    results.push_back(loss.detach().cpu());
  }
  for (const auto& tensor : net.parameters()) results.push_back(tensor.detach().cpu());
  for (const auto& tensor : net.buffers()) results.push_back(tensor.detach().cpu());
  return results;
}

template <typename Net>
void expect_equal_training(const at::Tensor& inputs) {
  const auto expected = train<Net>(at::kCPU, inputs);
  const FreshSeed seed;
  const FakeGpuDelays delays(seed.value);
  const auto trained = train<Net>(fake_gpu(), inputs);
  ASSERT_EQ(trained.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(trained[i].equal(expected[i])) << "tensor " << i;
}

}  // namespace

TEST(FakeGpuTraining, OfAConvolutionalNetworkEqualsTheCpus) {
  expect_equal_training<SmallNet>(at::randn({4, 3, 12, 12}));
}

TEST(FakeGpuTraining, OfAnAttentionBlockEqualsTheCpus) {
  expect_equal_training<AttentionNet>(at::randint(0, 20, {3, 7}, at::kLong));
}

TEST(FakeGraph, RunsItsOperationsAtEachReplay) {
  const c10::StreamGuard on_stream(another_stream());
  auto tensor = at::ones({4}, on_gpu());
  FakeGraph graph;
  graph.begin(fake_gpu());
  const auto doubled = tensor * 2;
  tensor.copy_(doubled);
  EXPECT_THROW(tensor.item(), c10::Error);
  graph.end();
  EXPECT_EQ(item(tensor[0]), 1);
  const auto counts = counts_of([&] {
    for (int i = 0; i < 3; ++i) graph.replay();
  });
  EXPECT_EQ(counts.device_operations, 3u);
  EXPECT_EQ(item(tensor[0]), 8);
}

TEST(FakeGraph, KeepsItsMemory) {
  const c10::StreamGuard on_stream(another_stream());
  auto graph = std::make_unique<FakeGraph>();
  const void* address = nullptr;
  graph->begin(fake_gpu());
  {
    const auto temporary = at::ones({777}, on_gpu());
    address = temporary.const_data_ptr();
  }
  EXPECT_EQ(at::empty({777}, on_gpu()).const_data_ptr(), address);  // within the graph it is used again
  graph->end();
  EXPECT_NE(at::empty({777}, on_gpu()).const_data_ptr(), address);
  graph->replay();
  current_stream().synchronize();
  graph.reset();
  std::vector<const void*> addresses;
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < 3; ++i) {
    tensors.push_back(at::empty({777}, on_gpu()));
    addresses.push_back(tensors.back().const_data_ptr());
  }
  EXPECT_NE(std::find(addresses.begin(), addresses.end(), address), addresses.end());
}

TEST(FakeGraph, MustBeJoinedByAllStreamsThatItForks) {
  for (const bool joined : {false, true}) {
    const auto origin = another_stream();
    const c10::StreamGuard on_stream(origin);
    const auto other = another_stream();
    auto tensor = at::ones({4}, on_gpu());
    FakeGraph graph;
    graph.begin(fake_gpu());
    c10::Event forked(at::kPrivateUse1);
    forked.record(current_stream());
    forked.block(other);
    {
      const c10::StreamGuard on_other(other);
      tensor.add_(1);
      c10::Event done(at::kPrivateUse1);
      done.record(other);
      if (joined) done.block(origin);
    }
    if (!joined) {
      EXPECT_THROW(graph.end(), c10::Error);
      continue;
    }
    graph.end();
    graph.replay();
    EXPECT_EQ(item(tensor[0]), 2);
  }
}

TEST(FakeGraph, TrainsLikeTheCpu) {
  const auto inputs = at::randn({4, 3, 12, 12});
  const auto expected = train<SmallNet>(at::kCPU, inputs);
  at::manual_seed(1);
  SmallNet net;
  net.to(fake_gpu());
  const auto input = inputs.to(fake_gpu());
  const auto labels = at::arange(4, at::kLong).to(fake_gpu());
  torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  at::Tensor loss;
  const auto step = [&] {
    sgd.zero_grad();
    loss = torch::cross_entropy_loss(net.forward(input), labels);
    loss.backward();
    sgd.step();
  };
  const c10::StreamGuard on_stream(another_stream());
  current_stream().synchronize();
  std::vector<at::Tensor> losses;
  step();  // warm-up: allocates the momentum
  losses.push_back(loss.detach().cpu());
  FakeGraph graph;
  graph.begin(fake_gpu());
  step();
  graph.end();
  for (int i = 1; i < 5; ++i) {
    graph.replay();
    losses.push_back(loss.detach().cpu());
  }
  for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_TRUE(losses[i].equal(expected[i])) << "step " << i;
}

TEST(FakeGpuTraining, NeedsNoHostSynchronisation) {
  SmallNet net;
  net.to(fake_gpu());
  torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const auto input = at::randn({4, 3, 12, 12}, on_gpu());
  const auto labels = at::zeros({4}, on_gpu().dtype(at::kLong));
  const auto step = [&] {
    sgd.zero_grad();
    torch::cross_entropy_loss(net.forward(input), labels).backward();
    sgd.step();
  };
  step();
  EXPECT_EQ(counts_of(step).host_synchronizations, 0u);
}

}  // namespace libtrain::test
