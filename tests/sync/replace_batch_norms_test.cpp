// Putting SyncBatchNorm into models, on ranks as threads and under mpirun.

#include <cstdint>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim/sgd.h>

#include <libtrain/base/error.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>
#include <libtrain/sync/sync_batch_norm.hpp>

#include <tests/support/device.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>

namespace libtrain {
namespace {

using test::device;
using test::message_of;
using test::on_ranks;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kSamples = 2;  // of each rank

// Numbers about `mean` that depend on nothing but their position.
at::Tensor wave(at::IntArrayRef shape, double speed, double mean = 0) {
  return torch::arange(c10::multiply_integers(shape), at::kDouble).mul(speed).sin().view(shape).add(mean).to(device());
}

at::Tensor part_of(const at::Tensor& whole, const Communicator& communicator) {
  return whole.narrow(0, kSamples * communicator.rank(), kSamples);
}

void expect_near(const at::Tensor& actual, const at::Tensor& wanted, const std::string& what) {
  ASSERT_EQ(actual.sizes(), wanted.sizes()) << what;
  const auto expected = wanted.cpu();
  EXPECT_LE((actual.cpu() - expected).abs().max().item<double>(), 1e-9 * (1 + expected.abs().max().item<double>()))
      << what;
}

struct NetImpl : torch::nn::Module {
  torch::nn::Sequential body{torch::nn::Linear(4, 3),
                             torch::nn::BatchNorm1d(torch::nn::BatchNormOptions(3).eps(1e-3).momentum(0.3)),
                             torch::nn::Tanh(), torch::nn::Linear(3, 2)};
  NetImpl() {
    register_module("body", body);
    to(device(), at::kDouble);
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters()) parameter.copy_(wave(parameter.sizes(), 2.1, 0.2));
  }
  at::Tensor forward(const at::Tensor& x) { return body->forward(x); }
};
TORCH_MODULE(Net);

TEST(ReplaceBatchNorms, KeepsParametersBuffersOptionsAndMode) {
  on_ranks([](Communicator& communicator) {
    Net model;
    model->eval();
    const auto parameters = model->named_parameters();
    const auto buffers = model->named_buffers();
    EXPECT_EQ(replace_batch_norms(*model, communicator), 1u);
    EXPECT_EQ(model->named_parameters().keys(), parameters.keys());
    EXPECT_EQ(model->named_buffers().keys(), buffers.keys());
    for (const auto& item : model->named_parameters()) EXPECT_TRUE(item.value().is_same(parameters[item.key()]));
    for (const auto& item : model->named_buffers()) EXPECT_TRUE(item.value().is_alias_of(buffers[item.key()]));
    const auto* layer = model->body->ptr(1)->as<SyncBatchNorm>();
    ASSERT_NE(layer, nullptr);
    EXPECT_EQ(layer->options.eps(), 1e-3);
    EXPECT_EQ(layer->options.momentum(), 0.3);
    EXPECT_FALSE(layer->is_training());
    EXPECT_EQ(replace_batch_norms(*model, communicator), 0u);
  });
}

TEST(ReplaceBatchNorms, LetsRanksTrainAsOneProcessDoes) {
  on_ranks([](Communicator& communicator) {
    Net model;
    Net reference;
    const auto options = torch::optim::SGDOptions(0.1).momentum(0.9);
    torch::optim::SGD optimizer{model->parameters(), options};  // made before: it must go on
    torch::optim::SGD reference_optimizer{reference->parameters(), options};
    replace_batch_norms(*model, communicator);
    GradientSynchronizer synchronizer{*model, communicator};
    const auto samples = kSamples * communicator.world_size();
    for (int step = 0; step < 5; ++step) {
      const auto inputs = wave({samples, 4}, 0.3 + step);
      const auto targets = wave({samples, 2}, 0.5 + step);
      torch::mse_loss(reference->forward(inputs), targets).backward();
      reference_optimizer.step();
      reference_optimizer.zero_grad();
      torch::mse_loss(model->forward(part_of(inputs, communicator)), part_of(targets, communicator)).backward();
      synchronizer.wait();
      optimizer.step();
      synchronizer.zero_grad();
    }
    const auto wanted = reference->named_parameters();
    for (const auto& item : model->named_parameters()) {
      expect_near(item.value().detach(), wanted[item.key()].detach(), item.key());
    }
    const auto statistics = reference->named_buffers();
    for (const auto& item : model->named_buffers()) {
      expect_near(item.value(), statistics[item.key()], item.key());
    }
  });
}

TEST(ReplaceBatchNorms, LetsOneLayerStandInTwoPlaces) {
  on_ranks([](Communicator& communicator) {
    torch::nn::BatchNorm1d norm{3};
    torch::nn::Sequential model{norm, torch::nn::Tanh(), norm};
    EXPECT_EQ(replace_batch_norms(*model, communicator), 1u);
    EXPECT_NE(model->ptr(0)->as<SyncBatchNorm>(), nullptr);
    EXPECT_EQ(model->ptr(0), model->ptr(2));
    EXPECT_EQ(model->named_children()["2"], model->ptr(2));
  });
}

struct FixedImpl : torch::nn::Module {
  Net net;
  torch::nn::BatchNorm2d bn{2};
  FixedImpl() {
    register_module("net", net);
    register_module("bn", bn);
  }
};
TORCH_MODULE(Fixed);

struct OuterImpl : torch::nn::Module {
  Fixed block;
  torch::nn::ModuleList list{torch::nn::BatchNorm1d(2)};
  OuterImpl() {
    register_module("block", block);
    register_module("list", list);
  }
};
TORCH_MODULE(Outer);

TEST(ReplaceBatchNorms, NamesWhatIsOutOfReachAndChangesNothing) {
  on_ranks([](Communicator& communicator) {
    Outer model;
    EXPECT_THAT(message_of<UsageError>([&] { replace_batch_norms(*model, communicator); }),
                AllOf(HasSubstr("'block.bn'"), HasSubstr("'list.0'"), HasSubstr("AnyModule"),
                      Not(HasSubstr("'block.net.body.1'"))));
    EXPECT_EQ(model->block->net->body->ptr(1)->as<SyncBatchNorm>(), nullptr);
    torch::nn::BatchNorm1d alone{2};
    EXPECT_THAT(message_of<UsageError>([&] { replace_batch_norms(*alone, communicator); }), HasSubstr("itself"));
    torch::nn::Linear none{2, 2};
    EXPECT_EQ(replace_batch_norms(*none, communicator), 0u);
  });
}

TEST(SyncBatchNormFactory, MakesLayersForModulesThatKeepThemInAnyModule) {
  on_ranks([](Communicator& communicator) {
    const auto factory = sync_batch_norm_factory(communicator);
    const auto inputs = wave({kSamples * communicator.world_size(), 3}, 0.7);
    for (int layer = 0; layer < 2; ++layer) {
      torch::nn::AnyModule norm = factory(3);
      torch::nn::BatchNorm1d plain{3};
      norm.ptr()->to(device(), at::kDouble);
      plain->to(device(), at::kDouble);
      expect_near(norm.forward(part_of(inputs, communicator)), part_of(plain->forward(inputs), communicator), "output");
    }
  });
}

}  // namespace
}  // namespace libtrain
