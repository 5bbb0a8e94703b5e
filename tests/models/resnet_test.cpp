#include <libtrain/models/resnet.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>
#include <torch/utils.h>

namespace libtrain::models {
namespace {

// Tests run from the root of the checkout. The files come from torchvision: tests/models/make_golden.py.
std::ifstream open_golden(const std::string& name) {
  std::ifstream file(std::filesystem::path("tests/models/data") / name);
  EXPECT_TRUE(file) << name;
  return file;
}

std::vector<std::string> lines_of(const std::string& name) {
  auto file = open_golden(name);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::map<std::string, at::Tensor> outputs(const std::string& model) {
  std::map<std::string, at::Tensor> result;
  for (const auto& line : lines_of(model + "_outputs.txt")) {
    std::istringstream stream(line);
    std::string name;
    stream >> name;
    std::vector<double> values;
    for (double value = 0; stream >> value;) values.push_back(value);
    result[name] = torch::tensor(values, at::kDouble);
  }
  return result;
}

std::string shape_of(const at::Tensor& tensor) {
  std::string shape;
  for (const auto size : tensor.sizes()) shape += (shape.empty() ? "" : "x") + std::to_string(size);
  return shape.empty() ? "scalar" : shape;
}

std::vector<std::string> names_and_shapes(const torch::nn::Module& model) {
  std::vector<std::string> lines;
  for (const auto& item : model.named_parameters()) {
    lines.push_back("parameter " + item.key() + " " + shape_of(item.value()));
  }
  for (const auto& item : model.named_buffers()) {
    lines.push_back("buffer " + item.key() + " " + shape_of(item.value()));
  }
  return lines;
}

std::int64_t parameter_count(const torch::nn::Module& model) {
  std::int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  return count;
}

// `unit` and `fill` of make_golden.py.
at::Tensor unit(std::uint64_t tensor_index, std::int64_t count) {
  at::Tensor values = torch::empty({count}, at::kFloat);
  auto* data = values.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t x = (tensor_index * 1000003 + static_cast<std::uint64_t>(i) + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    data[i] = static_cast<float>(x >> 40) * 0x1.0p-24f;
  }
  return values;
}

void fill(const std::string& name, at::Tensor tensor, std::uint64_t index) {
  if (name.ends_with("num_batches_tracked")) return;
  at::Tensor values = unit(index, tensor.numel());
  if (tensor.dim() > 1) {
    const auto fan_in = static_cast<double>(tensor.numel() / tensor.size(0));
    values = (values - 0.5) * std::exp2(2 - static_cast<int>(std::log2(fan_in)) / 2);
  } else {
    const bool positive = name.ends_with("running_var") || (name.ends_with("weight") && !name.starts_with("fc"));
    values = positive ? values + 0.5 : values - 0.5;
  }
  tensor.copy_(values.view_as(tensor));
}

std::uint64_t fill(torch::nn::Module& model) {
  std::uint64_t index = 0;
  for (const auto& item : model.named_parameters()) fill(item.key(), item.value(), index++);
  for (const auto& item : model.named_buffers()) fill(item.key(), item.value(), index++);
  return index;
}

// Relative to the largest value: a logit near zero is the difference of large terms.
void expect_close(const at::Tensor& actual, const at::Tensor& expected) {
  ASSERT_EQ(actual.numel(), expected.numel());
  const double difference = (actual.flatten() - expected).abs().max().item<double>();
  EXPECT_LT(difference, 1e-9 * expected.abs().max().item<double>());
}

TEST(ResNet, HasTorchvisionsNamesAndShapes) {
  EXPECT_EQ(names_and_shapes(*resnet18()), lines_of("resnet18.txt"));
  EXPECT_EQ(names_and_shapes(*resnet50()), lines_of("resnet50.txt"));
}

TEST(ResNet, HasTorchvisionsNumberOfParameters) {
  EXPECT_EQ(parameter_count(*resnet18()), 11689512);
  EXPECT_EQ(parameter_count(*resnet8({.classes = 10})), 78042);
  EXPECT_EQ(parameter_count(*resnet20({.classes = 10})), 272474);
  EXPECT_EQ(parameter_count(*resnet34()), 21797672);
  EXPECT_EQ(parameter_count(*resnet101()), 44549160);
  EXPECT_EQ(parameter_count(*resnet152()), 60192808);
  EXPECT_EQ(parameter_count(*wide_resnet50_2()), 68883240);
  EXPECT_EQ(parameter_count(*wide_resnet101_2()), 126886696);
  EXPECT_EQ(parameter_count(*resnext50_32x4d()), 25028904);
  EXPECT_EQ(parameter_count(*resnext101_32x8d()), 88791336);
  EXPECT_EQ(parameter_count(*resnext101_64x4d()), 83455272);
  ResNet model = resnet50({.classes = 1000});
  EXPECT_EQ(parameter_count(*model), 25557032);
  EXPECT_EQ(model->parameters().size(), 161u);
}

struct Golden {
  std::string name;
  ResNet (*make)(ResNetOptions);
};

class TorchvisionResNet : public ::testing::TestWithParam<Golden> {};

TEST_P(TorchvisionResNet, IsInitializedTheSame) {
  torch::manual_seed(0);
  ResNet model = GetParam().make({.classes = 10});
  const auto parameters = model->named_parameters();
  int compared = 0;
  for (const auto& [name, expected] : outputs(GetParam().name)) {
    if (!name.starts_with("initial_")) continue;
    const double sum = parameters[name.substr(8)].detach().to(at::kDouble).abs().sum().item<double>();
    EXPECT_NEAR(sum, expected.item<double>(), 1e-6 * sum) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 5);
  EXPECT_EQ(parameters["layer1.0.bn1.weight"].min().item<float>(), 1.f);
  EXPECT_EQ(parameters["layer1.0.bn1.bias"].abs().max().item<float>(), 0.f);
}

TEST_P(TorchvisionResNet, ComputesTheSame) {
  const torch::NoGradGuard no_grad;
  ResNet model = GetParam().make({.classes = 10});
  const std::uint64_t tensors = fill(*model);
  const at::Tensor images = unit(tensors, 4 * 3 * 64 * 64).view({4, 3, 64, 64}).to(at::kDouble) * 2 - 1;
  model->to(at::kDouble);
  const auto golden = outputs(GetParam().name);
  model->eval();
  expect_close(model->forward(images), golden.at("eval_logits"));
  model->train();
  expect_close(model->forward(images), golden.at("train_logits"));
  const auto buffers = model->named_buffers();
  int compared = 0;
  for (const auto& [name, expected] : golden) {
    if (const auto* buffer = buffers.find(name)) {
      expect_close(buffer->slice(0, 0, 64), expected);
      ++compared;
    }
  }
  EXPECT_EQ(compared, 2);
}

INSTANTIATE_TEST_SUITE_P(Models, TorchvisionResNet,
                         ::testing::Values(Golden{"resnet18", &resnet18}, Golden{"resnet50", &resnet50}),
                         [](const auto& info) { return info.param.name; });

TEST(ResNet, SmallStemKeepsTheSizeOfSmallImages) {
  ResNet model(ResNetOptions{.layers = {1, 1, 1}, .classes = 10, .width = 8, .input_channels = 1, .stem = Stem::small});
  EXPECT_EQ(shape_of(model->named_parameters()["conv1.weight"]), "8x1x3x3");
  EXPECT_EQ(shape_of(model->named_parameters()["fc.weight"]), "10x32");
  const at::Tensor logits = model->forward(torch::rand({5, 1, 8, 8}));
  EXPECT_EQ(shape_of(logits), "5x10");
  model->eval();
  EXPECT_EQ(shape_of(model->forward(torch::rand({0, 1, 8, 8}))), "0x10");
}

TEST(ResNet, GivesEveryParameterAGradient) {
  for (const Block block : {Block::basic, Block::bottleneck}) {
    ResNet model(ResNetOptions{.block = block, .layers = {1, 2}, .classes = 3, .width = 4});
    torch::nn::functional::cross_entropy(model->forward(torch::rand({4, 3, 32, 32})), torch::tensor({0, 1, 2, 0}))
        .backward();
    for (const auto& item : model->named_parameters()) {
      ASSERT_TRUE(item.value().grad().defined()) << item.key();
      EXPECT_GT(item.value().grad().abs().sum().item<float>(), 0.f) << item.key();
    }
  }
}

// Counts its calls, and normalises as batch norm does.
struct CountingNormImpl : torch::nn::Module {
  CountingNormImpl(std::int64_t channels, int& calls) : norm(channels), calls_(calls) { register_module("norm", norm); }
  at::Tensor forward(const at::Tensor& x) {
    ++calls_;
    return norm->forward(x);
  }
  torch::nn::BatchNorm2d norm;

 private:
  int& calls_;
};
TORCH_MODULE(CountingNorm);

TEST(ResNet, TakesItsNormsFromAFactory) {
  for (const Block block : {Block::basic, Block::bottleneck}) {
    std::vector<std::int64_t> channels;
    int calls = 0;
    const auto factory = [&](std::int64_t count) {
      channels.push_back(count);
      return torch::nn::AnyModule(CountingNorm(count, calls));
    };
    ResNet model(ResNetOptions{.block = block, .layers = {1, 2}, .classes = 3, .width = 4, .norm = factory});
    // torchvision's count: the stem, two or three a block, and one for each shortcut that changes the shape.
    const std::vector<std::int64_t> basic = {4, 4, 4, 8, 8, 8, 8, 8};
    const std::vector<std::int64_t> bottleneck = {4, 16, 4, 4, 16, 32, 8, 8, 32, 8, 8, 32};
    EXPECT_EQ(channels, block == Block::basic ? basic : bottleneck);
    for (const auto& item : model->named_buffers()) EXPECT_NE(item.key().find(".norm."), std::string::npos);
    EXPECT_EQ(shape_of(model->forward(torch::rand({2, 3, 16, 16}))), "2x3");
    EXPECT_EQ(calls, static_cast<int>(channels.size()));
  }
}

TEST(ResNet, MayBeginWithBlocksThatAreIdentities) {
  for (const Block block : {Block::basic, Block::bottleneck}) {
    const std::string last = block == Block::basic ? ".bn2.weight" : ".bn3.weight";
    ResNet model(ResNetOptions{.block = block, .layers = {2, 1}, .classes = 3, .width = 4, .zero_init_residual = true});
    int zeros = 0;
    for (const auto& item : model->named_parameters()) {
      if (item.key().find(".bn") == std::string::npos || !item.key().ends_with("weight")) continue;
      const bool is_last = item.key().ends_with(last);
      EXPECT_EQ(item.value().sum().item<float>(), is_last ? 0.F : static_cast<float>(item.value().numel()))
          << item.key();
      zeros += is_last ? 1 : 0;
    }
    EXPECT_EQ(zeros, 3);
  }
}

TEST(ResNet, DropsInputsOfTheLastLayerInTraining) {
  torch::manual_seed(1);
  ResNet model(ResNetOptions{.layers = {1}, .classes = 3, .width = 64, .dropout = 0.5});
  const auto images = torch::rand({2, 3, 16, 16});
  EXPECT_FALSE(at::equal(model->forward(images), model->forward(images)));
  model->eval();
  EXPECT_TRUE(at::equal(model->forward(images), model->forward(images)));
}

TEST(ResNet, RefusesImpossibleOptions) {
  EXPECT_THROW(ResNet(ResNetOptions{.groups = 2}), std::invalid_argument);
  EXPECT_THROW(ResNet(ResNetOptions{.block = Block::bottleneck, .groups = 0}), std::invalid_argument);
  EXPECT_THROW(resnet18({.dropout = 1}), std::invalid_argument);
  EXPECT_THROW(ResNet(ResNetOptions{.layers = {}}), std::invalid_argument);
  EXPECT_THROW(ResNet(ResNetOptions{.layers = {1, 1, 1, 1, 1}}), std::invalid_argument);
  EXPECT_THROW(ResNet(ResNetOptions{.layers = {1, 0}}), std::invalid_argument);
  EXPECT_THROW(resnet18({.classes = -1}), std::invalid_argument);
}

}  // namespace
}  // namespace libtrain::models
