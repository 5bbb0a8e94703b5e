// The code of docs/coming-from-pytorch.md besides its program, which is examples/mnist/mnist_loop.cpp: it compiles, and
// does what the page says. tests/scripts/readme_test.py compares the two.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <libtrain/comm/detail/single/single_communicator.hpp>
#include <libtrain/libtrain.hpp>
#include <libtrain/models/resnet.hpp>

#include <tests/support/temporary_folder.hpp>

namespace libtrain {
namespace {

namespace lt = libtrain;

struct MnistNetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return fc->forward(torch::relu(conv->forward(x)).flatten(1)); }
  torch::nn::Conv2d conv{register_module("conv", torch::nn::Conv2d(1, 16, 3))};
  torch::nn::Linear fc{register_module("fc", torch::nn::Linear(16 * 26 * 26, 10))};
};
TORCH_MODULE(MnistNet);  // `MnistNet model;` is a shared pointer to a MnistNetImpl: model->forward(x), *model

class ComingFromPytorch : public ::testing::Test {
 protected:
  ComingFromPytorch() : context{{std::make_shared<detail::SingleCommunicator>()}} {}

  lt::Context context;
  MnistNet model;
  lt::data::Batch batch{torch::rand({4, 1, 28, 28}), torch::tensor({1, 2, 3, 4})};
};

TEST_F(ComingFromPytorch, OwnModulesHaveTheNamesOfPython) {
  const std::vector<std::string> names{"conv.weight", "conv.bias", "fc.weight", "fc.bias"};
  EXPECT_EQ(model->named_parameters().keys(), names);
  EXPECT_EQ(model->forward(batch.images).sizes(), torch::IntArrayRef({4, 10}));
}

TEST_F(ComingFromPytorch, SumsAndMeansOverRanks) {
  const auto total = torch::ones({2});
  const auto loss = torch::scalar_tensor(0.5);
  context.communicator().all_reduce(total).wait();  // dist.all_reduce(total)
  const double mean_loss = lt::mean_over_ranks(loss.item<double>(), context.communicator());
  EXPECT_EQ(mean_loss, 0.5);
  EXPECT_TRUE(total.equal(torch::ones({2})));  // one rank
}

class EightPictures : public lt::data::Dataset {
 public:
  std::uint64_t size() const override { return 8; }
  lt::data::Sample get(std::uint64_t index, lt::data::SampleRandom& /*random*/) const override {
    return {torch::full({1, 28, 28}, static_cast<double>(index)), static_cast<std::int64_t>(index)};
  }
};

TEST_F(ComingFromPytorch, EvaluatesAMovingAverage) {
  const EightPictures pictures;
  lt::data::DataLoader test_loader{
      pictures, {.batch_size = 4, .remainder = lt::data::Remainder::exact}, context.shard()};
  lt::GradientSynchronizer synchronizer{model, context.communicator()};
  lt::optim::MovingAverage average{*model};
  const auto before = model->fc->bias.detach().clone();
  {
    const torch::NoGradGuard no_gradients;
    model->fc->bias.add_(1);
  }
  const auto is_correct = [&](const lt::data::Batch& batch_of_test) {
    EXPECT_TRUE(model->fc->bias.equal(before));
    return model->forward(batch_of_test.images).argmax(1).eq(batch_of_test.labels);
  };
  {
    const auto averaged = average.swap(*model);  // until the end of the scope
    synchronizer.broadcast_buffers();
    const auto result = lt::evaluate(*model, test_loader, context.communicator(), is_correct);
    EXPECT_EQ(result.samples, 8);
  }
  EXPECT_TRUE(model->fc->bias.equal(before + 1));
}

TEST_F(ComingFromPytorch, ComputesInMixedPrecision) {
  torch::Tensor loss;
  {
    const lt::Autocast autocast{context.device(), {.type = at::kBFloat16}};
    loss = torch::cross_entropy_loss(model->forward(batch.images), batch.labels);
  }
  loss.backward();
  EXPECT_EQ(model->conv->weight.grad().scalar_type(), torch::kFloat);
}

TEST_F(ComingFromPytorch, LoadsAllButTheLastLayer) {
  const test::TemporaryFolder folder;
  const auto former = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  lt::save_weights(*lt::models::resnet18({.classes = 5}), "resnet18.pth");  // recognised by its content
  auto model = lt::models::resnet18({.classes = 10});
  const auto fc = model->named_parameters()["fc.weight"].detach().clone();
  lt::load_weights(*model, "resnet18.pth", {.may_be_missing = {"fc."}});  // a new last layer keeps its values
  lt::save_weights(*model, "model.safetensors");                          // on one rank; safetensors.torch.load_file
  const auto saved = lt::read_tensors("model.safetensors");
  EXPECT_TRUE(saved.at("fc.weight").equal(fc));
  EXPECT_TRUE(saved.at("conv1.weight").equal(lt::read_tensors("resnet18.pth").at("conv1.weight")));
  std::filesystem::current_path(former);
}

}  // namespace
}  // namespace libtrain
