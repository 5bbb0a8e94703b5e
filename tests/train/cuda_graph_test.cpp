#include <libtrain/train/cuda_graph.hpp>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <libtrain/base/error.hpp>
#include <libtrain/comm/detail/nccl/connect_nccl.hpp>
#include <libtrain/optim/fused_adamw.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>
#include <libtrain/train/step_graph.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain {
namespace {

using test::message_of;
using ::testing::HasSubstr;
using Tensors = StepGraph::Tensors;

const at::Device kGpu{at::kCUDA, 0};

TEST(CudaGraph, TakesAGpuThatExists) {
  EXPECT_THAT(message_of<UsageError>([] { cuda_graph(at::kCPU); }), HasSubstr("not cpu"));
  EXPECT_THAT(message_of<EnvironmentError>([] { cuda_graph({at::kCUDA, 100}); }), HasSubstr("does not exist"));
}

at::Tensor train(bool recorded) {
  torch::manual_seed(1);
  torch::nn::Sequential model{torch::nn::Linear(8, 16), torch::nn::Linear(16, 4)};
  model->to(kGpu);
  const auto communicator = detail::single_gpu(kGpu);
  GradientSynchronizer synchronizer{model, *communicator};
  optim::FusedAdamW adamw{model->parameters(), torch::optim::AdamWOptions(0.015625)};
  const auto body = [&](const Tensors& inputs) {
    const auto loss = torch::mse_loss(model->forward(inputs[0]), inputs[1]);
    loss.backward();
    synchronizer.wait();
    adamw.step();
    synchronizer.zero_grad();
    return Tensors{loss};
  };
  StepGraph graph{*communicator, cuda_graph(kGpu), {adamw}, body};
  for (int step = 0; step < 20; ++step) {
    const auto inputs = at::linspace(0, step, 32, kGpu).view({4, 8});
    const auto targets = at::linspace(-1, 1, 16, kGpu).view({4, 4});
    recorded ? graph.step({inputs, targets}) : body({inputs, targets});
  }
  EXPECT_EQ(graph.is_recorded(), recorded);
  std::vector<at::Tensor> weights;
  for (const auto& parameter : model->parameters()) weights.push_back(parameter.detach().flatten());
  return at::cat(weights).cpu();
}

TEST(CudaGraph, ReplaysEqualEagerSteps) {
  const c10::StreamGuard in_stream(c10::impl::VirtualGuardImpl(kGpu.type()).getStreamFromGlobalPool(kGpu));
  EXPECT_TRUE(at::allclose(train(false), train(true), 1e-5, 1e-6));
}

TEST(CudaGraph, LeavesStreamAndAllocatorUsableAfterAnInvalidCapture) {
  const c10::StreamGuard in_stream(c10::impl::VirtualGuardImpl(kGpu.type()).getStreamFromGlobalPool(kGpu));
  const auto communicator = detail::single_gpu(kGpu);
  for (int time = 0; time < 2; ++time) {
    StepGraph graph{*communicator, cuda_graph(kGpu), {}, [](const Tensors& inputs) {
                      auto sum = inputs[0].sum();
                      static_cast<void>(sum.item<float>());
                      return Tensors{sum};
                    }};
    const auto input = at::ones({4}, kGpu);
    for (int step = 0; step < 3; ++step) graph.step({input});
    EXPECT_THAT(message_of<UsageError>([&] { graph.step({input}); }), HasSubstr("cannot be recorded"));
    EXPECT_FALSE(communicator->is_recording());
    EXPECT_EQ(at::ones({1 << 20}, kGpu).sum().item<float>(), 1 << 20);
  }
}

}  // namespace
}  // namespace libtrain
