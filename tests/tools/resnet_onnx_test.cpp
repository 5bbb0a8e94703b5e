#include <tools/checkpoint/resnet_onnx.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::checkpoint_tool {
namespace {

using libtrain::test::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Tensors = std::map<std::string, TensorInfo>;
using Shape = std::vector<std::int64_t>;

void add(Tensors& tensors, const std::string& name, const Shape& shape) {
  tensors[name] = {.name = name, .shape = shape};
}

void add_norm(Tensors& tensors, const std::string& name, std::int64_t channels) {
  for (const auto* const of : {".weight", ".bias", ".running_mean", ".running_var"})
    add(tensors, name + of, {channels});
  tensors[name + ".num_batches_tracked"] = {.name = name + ".num_batches_tracked", .type = ElementType::int64};
}

// One basic block of width 4 behind a small stem; 2 classes.
Tensors basic() {
  Tensors tensors;
  add(tensors, "conv1.weight", {4, 3, 3, 3});
  add_norm(tensors, "bn1", 4);
  for (const auto* const number : {"1", "2"}) {
    add(tensors, std::string("layer1.0.conv") + number + ".weight", {4, 4, 3, 3});
    add_norm(tensors, std::string("layer1.0.bn") + number, 4);
  }
  add(tensors, "fc.weight", {2, 4});
  add(tensors, "fc.bias", {2});
  return tensors;
}

// One bottleneck of width 4 and inner width 6, in 2 groups, behind the stem for large images; 2 classes.
Tensors bottleneck() {
  Tensors tensors;
  add(tensors, "conv1.weight", {4, 1, 7, 7});
  add_norm(tensors, "bn1", 4);
  add(tensors, "layer1.0.conv1.weight", {6, 4, 1, 1});
  add_norm(tensors, "layer1.0.bn1", 6);
  add(tensors, "layer1.0.conv2.weight", {6, 3, 3, 3});
  add_norm(tensors, "layer1.0.bn2", 6);
  add(tensors, "layer1.0.conv3.weight", {16, 6, 1, 1});
  add_norm(tensors, "layer1.0.bn3", 16);
  add(tensors, "layer1.0.downsample.0.weight", {16, 4, 1, 1});
  add_norm(tensors, "layer1.0.downsample.1", 16);
  add(tensors, "fc.weight", {2, 16});
  add(tensors, "fc.bias", {2});
  return tensors;
}

std::string refusal_of(const Tensors& tensors) {
  return message_of<UsageError>([&] { resnet_onnx(tensors, "f.pth"); });
}

std::vector<std::string> operations_of(const OnnxModel& model) {
  std::vector<std::string> operations;
  for (const auto& node : model.nodes) operations.push_back(node.operation);
  return operations;
}

std::vector<OnnxNode> convolutions_of(const OnnxModel& model) {
  std::vector<OnnxNode> found;
  for (const auto& node : model.nodes) {
    if (node.operation == "Conv") found.push_back(node);
  }
  return found;
}

// "group 2, kernel_shape 3 3, pads 1 1 1 1, strides 1 1"
std::string attributes_of(const OnnxNode& node) {
  std::string all;
  for (const auto& [name, value] : node.attributes) {
    all += (all.empty() ? "" : ", ") + name;
    if (const auto* const number = std::get_if<std::int64_t>(&value)) all += ' ' + std::to_string(*number);
    if (const auto* const numbers = std::get_if<Shape>(&value)) {
      for (const auto each : *numbers) all += ' ' + std::to_string(each);
    }
  }
  return all;
}

TEST(ResNetOnnx, OfABasicBlockHasItsOperations) {
  const auto model = resnet_onnx(basic(), "f.pth");
  EXPECT_THAT(operations_of(model), ElementsAre("Conv", "BatchNormalization", "Relu",         //
                                                "Conv", "BatchNormalization", "Relu",         //
                                                "Conv", "BatchNormalization", "Add", "Relu",  //
                                                "GlobalAveragePool", "Flatten", "Gemm"));
  EXPECT_EQ(model.weights.size(), 17U);
  EXPECT_EQ(model.nodes.back().name, "logits");
  EXPECT_THAT(model.nodes[8].inputs, ElementsAre("layer1.0.bn2", "relu"));
}

TEST(ResNetOnnx, OfABottleneckHasItsOperations) {
  const auto model = resnet_onnx(bottleneck(), "f.pth");
  EXPECT_THAT(operations_of(model), ElementsAre("Conv", "BatchNormalization", "Relu", "MaxPool",  //
                                                "Conv", "BatchNormalization", "Relu",             //
                                                "Conv", "BatchNormalization", "Relu",             //
                                                "Conv", "BatchNormalization",                     //
                                                "Conv", "BatchNormalization", "Add", "Relu",      //
                                                "GlobalAveragePool", "Flatten", "Gemm"));
  const auto convolutions = convolutions_of(model);
  EXPECT_EQ(attributes_of(convolutions[0]), "group 1, kernel_shape 7 7, pads 3 3 3 3, strides 2 2");
  EXPECT_EQ(attributes_of(convolutions[1]), "group 1, kernel_shape 1 1, pads 0 0 0 0, strides 1 1");
  EXPECT_EQ(attributes_of(convolutions[2]), "group 2, kernel_shape 3 3, pads 1 1 1 1, strides 1 1");
}

TEST(ResNetOnnx, BeginsTheSecondStageWithAStride) {
  auto tensors = bottleneck();
  add(tensors, "layer2.0.conv1.weight", {14, 16, 1, 1});
  add_norm(tensors, "layer2.0.bn1", 14);
  add(tensors, "layer2.0.conv2.weight", {14, 7, 3, 3});
  add_norm(tensors, "layer2.0.bn2", 14);
  add(tensors, "layer2.0.conv3.weight", {32, 14, 1, 1});
  add_norm(tensors, "layer2.0.bn3", 32);
  add(tensors, "layer2.0.downsample.0.weight", {32, 16, 1, 1});
  add_norm(tensors, "layer2.0.downsample.1", 32);
  add(tensors, "fc.weight", {2, 32});
  std::vector<std::string> strided;
  for (const auto& node : convolutions_of(resnet_onnx(tensors, "f.pth"))) {
    if (attributes_of(node).ends_with("strides 2 2")) strided.push_back(node.name);
  }
  EXPECT_THAT(strided, ElementsAre("conv1", "layer2.0.conv2", "layer2.0.downsample.0"));
}

TEST(ResNetOnnx, NamesTheFirstOfEachKindThatIsWrong) {
  auto tensors = basic();
  tensors.erase("bn1.running_mean");
  tensors.erase("layer1.0.bn2.bias");
  add(tensors, "layer1.0.se.weight", {1});
  add(tensors, "layer5.0.conv1.weight", {1});
  add(tensors, "fc.weight", {2, 5});
  EXPECT_THAT(refusal_of(tensors),
              StartsWith("'f.pth' does not have the weights of a ResNet: 'bn1.running_mean' is missing (and 1 more), "
                         "'layer1.0.se.weight' is unexpected (and 1 more), 'fc.weight' is F32 of shape [2, 5] instead "
                         "of [2, 4]. Give the weights of a ResNet "));
}

TEST(ResNetOnnx, NamesWhatIsMissingBetweenBlocksAndStages) {
  auto tensors = basic();
  add(tensors, "layer1.2.conv1.weight", {4, 4, 3, 3});
  EXPECT_THAT(refusal_of(tensors),
              HasSubstr("'layer1.1.conv1.weight' is missing (and 9 more), 'layer1.2.conv1.weight' is unexpected. "));
  tensors = basic();
  add(tensors, "layer3.0.conv1.weight", {16, 8, 3, 3});
  EXPECT_THAT(refusal_of(tensors), HasSubstr("'layer2.0.conv1.weight' is missing (and "));
}

TEST(ResNetOnnx, NeedsAShortcutExactlyWhereTheSizeChanges) {
  auto tensors = basic();
  add(tensors, "layer1.0.downsample.0.weight", {4, 4, 1, 1});
  EXPECT_THAT(refusal_of(tensors), HasSubstr("'layer1.0.downsample.0.weight' is unexpected. "));
  tensors = bottleneck();
  tensors.erase("layer1.0.downsample.0.weight");
  EXPECT_THAT(refusal_of(tensors), HasSubstr("'layer1.0.downsample.0.weight' is missing. "));
}

TEST(ResNetOnnx, IsRefusedForOtherNetworks) {
  EXPECT_THAT(refusal_of({}), HasSubstr("none of its 0 tensors is called 'conv1.weight'. Give "));
  Tensors tensors;
  add(tensors, "features.0.weight", {64, 3, 3, 3});
  EXPECT_THAT(refusal_of(tensors),
              HasSubstr("none of its 1 tensors, such as 'features.0.weight', is called 'conv1.weight'"));
  for (const auto* const name : {"conv1.weight", "layer1.0.conv1.weight", "layer1.0.conv2.weight", "fc.weight"}) {
    tensors = basic();
    tensors.erase(name);
    EXPECT_THAT(refusal_of(tensors), HasSubstr(std::string("is called '") + name + "'. Give "));
  }
}

TEST(ResNetOnnx, AdvisesToRemoveAPrefix) {
  Tensors tensors;
  for (const auto& [name, tensor] : basic()) tensors["model.module." + name] = tensor;
  EXPECT_THAT(
      refusal_of(tensors),
      HasSubstr("is called 'conv1.weight'. Its names seem to begin with 'model.module.': give it as --prefix."));
}

TEST(ResNetOnnx, IsRefusedForImpossibleSizes) {
  for (const auto& shape : {Shape{}, Shape{4}, Shape{0, 3, 3, 3}, Shape{4, 3, 3, std::int64_t{1} << 62}}) {
    auto tensors = basic();
    add(tensors, "conv1.weight", shape);
    EXPECT_THAT(refusal_of(tensors), HasSubstr("'conv1.weight' is F32 of shape ["));
  }
  auto tensors = basic();
  add(tensors, "conv1.weight", {4, 3, 5, 5});
  EXPECT_THAT(refusal_of(tensors), HasSubstr("'conv1.weight' is F32 of shape [4, 3, 5, 5] instead of [4, 3, 7, 7]. "));
  tensors = bottleneck();
  add(tensors, "layer1.0.conv2.weight", {6, 4, 3, 3});
  EXPECT_THAT(refusal_of(tensors), HasSubstr("is F32 of shape [6, 4, 3, 3] instead of [6, 6, 3, 3]. "));
  // Sizes of 0 fit each other everywhere.
  tensors = bottleneck();
  tensors["layer1.0.conv1.weight"].shape[0] = 0;
  EXPECT_THAT(refusal_of(tensors), HasSubstr("'layer1.0.conv1.weight' is F32 of shape [0, 4, 1, 1], and must"));
}

TEST(ResNetOnnx, NeedsFloatingPointNumbers) {
  for (const auto type : {ElementType::int8, ElementType::complex64, ElementType::float8_e4m3}) {
    auto tensors = basic();
    tensors["fc.bias"].type = type;
    EXPECT_THAT(refusal_of(tensors), HasSubstr(" of shape [2] instead of F32, F16, BF16 or F64. "));
  }
  auto tensors = basic();
  tensors["fc.bias"].type = ElementType::bfloat16;
  EXPECT_EQ(resnet_onnx(tensors, "f.pth").weights.size(), 17U);
}

}  // namespace
}  // namespace libtrain::checkpoint_tool
