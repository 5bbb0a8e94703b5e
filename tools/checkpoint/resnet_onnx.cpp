#include <tools/checkpoint/resnet_onnx.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

#include <tools/checkpoint/onnx_graph.hpp>

namespace libtrain::checkpoint_tool {

namespace {

using Tensors = std::map<std::string, TensorInfo>;
using Integers = std::vector<std::int64_t>;

constexpr std::size_t kMostStages = 4;
constexpr std::int64_t kBottleneckExpansion = 4;
constexpr float kBatchNormEpsilon = 1e-5F;  // LibTorch's and PyTorch's default, which all ResNets here have

constexpr const char* kAdvice =
    "Give the weights of a ResNet by torchvision's names, or of a RoBERTa classifier by transformers', which --prefix "
    "and --rename can make of others.";

// What distinguishes one ResNet from another.
struct ResNetSizes {
  bool bottleneck = false;
  bool small_stem = false;
  Integers blocks = {};       // of each stage
  Integers inner_width = {};  // channels of the 3x3 convolutions of each stage
  std::int64_t groups = 1;
  std::int64_t width = 0;  // channels of the stem, and of the first stage before the expansion of a bottleneck
  std::int64_t input_channels = 0;
  std::int64_t classes = 0;
};

// The shape of a tensor without which the network is unknown. Its sizes are below 2^31, so that they can be multiplied;
// larger ones fit no ONNX file.
const Integers& shape_of(const Tensors& tensors, const std::string& path, const std::string& name,
                         std::size_t dimensions) {
  const auto found = tensors.find(name);
  if (found == tensors.end()) {
    throw UsageError(text("'", path, "' does not have the weights of a ResNet: none of its ", tensors.size(),
                          " tensors", tensors.empty() ? "" : text(", such as '", tensors.begin()->first, "',"),
                          " is called '", name, "'. ", advice_on_names(tensors, "layer1.0.conv1.weight", kAdvice)));
  }
  const auto& shape = found->second.shape;
  const auto is_size = [](std::int64_t size) { return size > 0 && size <= std::numeric_limits<std::int32_t>::max(); };
  if (shape.size() != dimensions || !std::ranges::all_of(shape, is_size)) {
    throw UsageError(text("'", path, "' does not have the weights of a ResNet: '", name, "' is ",
                          described(found->second), ", and must have ", dimensions, " dimensions of at least 1. ",
                          kAdvice));
  }
  return shape;
}

std::string block_name(std::size_t stage, std::int64_t block) {
  return text("layer", stage + 1, '.', block);
}

// The number of blocks of each stage: how many different ones the names have, so that for a gap in the numbers an error
// names both the missing block and the one after the gap.
Integers count_blocks(const Tensors& tensors) {
  Integers counts;
  for (std::size_t stage = 0; stage < kMostStages; ++stage) {
    const auto beginning = text("layer", stage + 1, '.');
    std::set<std::string> blocks;
    for (auto tensor = tensors.lower_bound(beginning); tensor != tensors.end(); ++tensor) {
      const auto& name = tensor->first;
      if (!name.starts_with(beginning)) break;
      blocks.insert(name.substr(beginning.size(), name.find('.', beginning.size()) - beginning.size()));
    }
    if (blocks.empty()) continue;
    counts.resize(stage, 1);  // of a stage without tensors the first block is missing
    counts.push_back(std::ssize(blocks));
  }
  return counts;
}

ResNetSizes read_sizes(const Tensors& tensors, const std::string& path) {
  const auto& stem = shape_of(tensors, path, "conv1.weight", 4);
  const auto& first = shape_of(tensors, path, block_name(0, 0) + ".conv1.weight", 4);
  const auto& spatial = shape_of(tensors, path, block_name(0, 0) + ".conv2.weight", 4);
  ResNetSizes sizes{.bottleneck = tensors.contains(block_name(0, 0) + ".conv3.weight"),
                    .small_stem = stem[2] == 3,
                    .blocks = count_blocks(tensors),
                    .width = stem[0],
                    .input_channels = stem[1],
                    .classes = shape_of(tensors, path, "fc.weight", 2)[0]};
  if (sizes.bottleneck && first[0] % spatial[1] == 0) sizes.groups = first[0] / spatial[1];
  for (std::size_t stage = 0; stage < sizes.blocks.size(); ++stage) {
    // Of a bottleneck it is a rounded multiple of the width, which each stage says for itself.
    const auto found = tensors.find(block_name(stage, 0) + ".conv1.weight");
    const bool is_free = sizes.bottleneck && found != tensors.end() && found->second.shape.size() == 4 &&
                         found->second.shape[0] > 0 && found->second.shape[0] % sizes.groups == 0;
    sizes.inner_width.push_back(is_free ? found->second.shape[0] : sizes.width << stage);
  }
  return sizes;
}

struct Convolution {
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::int64_t kernel = 0;
  std::int64_t stride = 1;
  std::int64_t groups = 1;
};

// Adds the layers one after the other, with the weights that each needs. A layer's function returns its output's name.
class ResNetGraph : public OnnxGraph {
 public:
  explicit ResNetGraph(const ResNetSizes& sizes) : sizes_(sizes) {
    model_.name = "ResNet";
    model_.inputs = {{.name = "images", .shape = {"N", sizes.input_channels, "H", "W"}}};
    model_.output = {.name = "logits", .shape = {"N", sizes.classes}};
    auto output = stem(model_.inputs[0].name);
    std::int64_t channels = sizes.width;
    for (std::size_t stage = 0; stage < sizes.blocks.size(); ++stage) {
      const std::int64_t out = (sizes.width << stage) * (sizes.bottleneck ? kBottleneckExpansion : 1);
      for (std::int64_t i = 0; i < sizes.blocks[stage]; ++i, channels = out) {
        output = block(stage, i, output, channels, out);
      }
    }
    head(output, channels);
  }

 private:
  std::string convolution(const std::string& name, const std::string& input, const Convolution& is) {
    const auto weight = add_weight(name + ".weight", {is.out, is.in / is.groups, is.kernel, is.kernel});
    return add("Conv", name, {input, weight},
               {{.name = "group", .value = is.groups},
                {.name = "kernel_shape", .value = Integers(2, is.kernel)},
                {.name = "pads", .value = Integers(4, is.kernel / 2)},
                {.name = "strides", .value = Integers(2, is.stride)}});
  }

  std::string norm(const std::string& name, const std::string& input, std::int64_t channels) {
    std::vector<std::string> inputs{input};
    for (const auto* const of : {".weight", ".bias", ".running_mean", ".running_var"}) {
      inputs.push_back(add_weight(name + of, {channels}));
    }
    return add("BatchNormalization", name, inputs, {{.name = "epsilon", .value = kBatchNormEpsilon}});
  }

  // The convolution and the norm of a number, conv1 and bn1.
  std::string normalized(const std::string& scope, int number, const std::string& input, const Convolution& is) {
    return norm(text(scope, "bn", number), convolution(text(scope, "conv", number), input, is), is.out);
  }

  std::string stem(const std::string& images) {
    const Convolution first{.in = sizes_.input_channels,
                            .out = sizes_.width,
                            .kernel = sizes_.small_stem ? 3 : 7,
                            .stride = sizes_.small_stem ? 1 : 2};
    const auto output = add("Relu", "relu", {normalized("", 1, images, first)});
    if (sizes_.small_stem) return output;
    return add("MaxPool", "maxpool", {output},
               {{.name = "kernel_shape", .value = Integers(2, 3)},
                {.name = "pads", .value = Integers(4, 1)},
                {.name = "strides", .value = Integers(2, 2)}});
  }

  std::string block(std::size_t stage, std::int64_t number, const std::string& input, std::int64_t in,
                    std::int64_t out) {
    const auto scope = block_name(stage, number) + '.';
    const std::int64_t stride = stage > 0 && number == 0 ? 2 : 1;
    const std::int64_t inner = sizes_.inner_width[stage];
    std::string output;
    if (sizes_.bottleneck) {
      output = normalized(scope, 1, input, {.in = in, .out = inner, .kernel = 1});
      output = add("Relu", scope + "relu1", {output});
      output = normalized(scope, 2, output,
                          {.in = inner, .out = inner, .kernel = 3, .stride = stride, .groups = sizes_.groups});
      output = add("Relu", scope + "relu2", {output});
      output = normalized(scope, 3, output, {.in = inner, .out = out, .kernel = 1});
    } else {
      output = normalized(scope, 1, input, {.in = in, .out = out, .kernel = 3, .stride = stride});
      output = add("Relu", scope + "relu1", {output});
      output = normalized(scope, 2, output, {.in = out, .out = out, .kernel = 3});
    }
    auto shortcut = input;
    if (stride != 1 || in != out) {
      shortcut = convolution(scope + "downsample.0", input, {.in = in, .out = out, .kernel = 1, .stride = stride});
      shortcut = norm(scope + "downsample.1", shortcut, out);
    }
    return add("Relu", scope + "relu", {add("Add", scope + "add", {output, shortcut})});
  }

  void head(const std::string& input, std::int64_t channels) {
    const auto pooled = add("Flatten", "flatten", {add("GlobalAveragePool", "avgpool", {input})},
                            {{.name = "axis", .value = std::int64_t{1}}});
    const auto weight = add_weight("fc.weight", {sizes_.classes, channels});
    const auto bias = add_weight("fc.bias", {sizes_.classes});
    add("Gemm", model_.output.name, {pooled, weight, bias}, {{.name = "transB", .value = std::int64_t{1}}});
  }

  const ResNetSizes& sizes_;
};

// The counters that norms have besides the statistics.
std::set<std::string> counters_of(const OnnxModel& model) {
  constexpr std::string_view kRunningMean = ".running_mean";
  std::set<std::string> counters;
  for (const auto& weight : model.weights) {
    if (!weight.name.ends_with(kRunningMean)) continue;
    counters.insert(weight.name.substr(0, weight.name.size() - kRunningMean.size()) + ".num_batches_tracked");
  }
  return counters;
}

}  // namespace

OnnxModel resnet_onnx(const std::map<std::string, TensorInfo>& tensors, const std::string& path) {
  const auto sizes = read_sizes(tensors, path);
  auto model = ResNetGraph{sizes}.take();
  require_weights(model, tensors, counters_of(model), text("'", path, "' does not have the weights of a ResNet"),
                  kAdvice);
  return model;
}

}  // namespace libtrain::checkpoint_tool
