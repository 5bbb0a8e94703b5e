#include <tools/checkpoint/roberta_onnx.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::checkpoint_tool {
namespace {

using libtrain::test::message_of;
using ::testing::HasSubstr;

using RobertaTensors = std::map<std::string, TensorInfo>;

const models::RobertaConfig kConfig{
    .options = {
        .vocabulary = 9, .hidden = 4, .layers = 2, .heads = 2, .feed_forward = 6, .positions = 8, .classes = 3}};

RobertaTensors tensors_of(const models::RobertaOptions& options) {
  RobertaTensors tensors;
  const auto add = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
    tensors[name] = {.name = name, .shape = shape};
  };
  const auto affine = [&](const std::string& name, std::int64_t inputs, std::int64_t outputs) {
    add(name + ".weight", {outputs, inputs});
    add(name + ".bias", {outputs});
  };
  const auto norm = [&](const std::string& name) {
    for (const auto* const of : {".weight", ".bias"}) add(name + of, {options.hidden});
  };
  const std::string embeddings = "roberta.embeddings.";
  add(embeddings + "word_embeddings.weight", {options.vocabulary, options.hidden});
  add(embeddings + "position_embeddings.weight", {options.positions, options.hidden});
  add(embeddings + "token_type_embeddings.weight", {options.token_types, options.hidden});
  norm(embeddings + "LayerNorm");
  for (std::int64_t i = 0; i < options.layers; ++i) {
    const auto scope = "roberta.encoder.layer." + std::to_string(i) + ".";
    for (const auto* const of : {"self.query", "self.key", "self.value", "output.dense"}) {
      affine(scope + "attention." + of, options.hidden, options.hidden);
    }
    norm(scope + "attention.output.LayerNorm");
    affine(scope + "intermediate.dense", options.hidden, options.feed_forward);
    affine(scope + "output.dense", options.feed_forward, options.hidden);
    norm(scope + "output.LayerNorm");
  }
  affine("classifier.dense", options.hidden, options.hidden);
  affine("classifier.out_proj", options.hidden, options.classes);
  return tensors;
}

std::string refusal_of_roberta(const RobertaTensors& tensors) {
  return message_of<UsageError>([&] { roberta_onnx(tensors, "f.safetensors", kConfig); });
}

// The format's rules: names are unique, and a node takes what is before it.
TEST(RobertaOnnx, IsAValidGraph) {
  const auto model = roberta_onnx(tensors_of(kConfig.options), "f.safetensors", kConfig);
  EXPECT_EQ(model.weights.size(), 5U + 2 * 16 + 4);
  std::set<std::string> known;
  for (const auto& input : model.inputs) EXPECT_TRUE(known.insert(input.name).second) << input.name;
  for (const auto& weight : model.weights) EXPECT_TRUE(known.insert(weight.name).second) << weight.name;
  std::set<std::string> taken;
  for (const auto& node : model.nodes) {
    for (const auto& input : node.inputs) {
      EXPECT_TRUE(known.contains(input)) << node.name << " takes " << input;
      taken.insert(input);
    }
    EXPECT_TRUE(known.insert(node.name).second) << node.name;
  }
  known.erase(model.output.name);
  EXPECT_EQ(taken, known) << "all but the output are used";
}

TEST(RobertaOnnx, ComputesTheLastLayerForTheFirstTokens) {
  const auto model = roberta_onnx(tensors_of(kConfig.options), "f.safetensors", kConfig);
  const auto input_of = [&](const std::string& name) {
    return std::ranges::find(model.nodes, name, &OnnxNode::name)->inputs[0];
  };
  const std::string attention = "roberta.encoder.layer.1.attention.self.";
  EXPECT_EQ(input_of(attention + "query"), "first_tokens");
  EXPECT_EQ(input_of(attention + "key"), "roberta.encoder.layer.0.output.LayerNorm");
  EXPECT_EQ(input_of("roberta.encoder.layer.0.attention.self.query"), "roberta.embeddings.LayerNorm");
}

TEST(RobertaOnnx, IsKnownByItsNames) {
  auto tensors = tensors_of(kConfig.options);
  EXPECT_TRUE(has_roberta_names(tensors));
  EXPECT_TRUE(has_roberta_names({{"bert.embeddings.word_embeddings.weight", {}}}));
  EXPECT_FALSE(has_roberta_names({{"conv1.weight", {}}, {"fc.weight", {}}}));
  EXPECT_FALSE(has_roberta_names({}));
}

TEST(RobertaOnnx, AdvisesToRemoveAPrefix) {
  RobertaTensors tensors;
  for (const auto& [name, tensor] : tensors_of(kConfig.options)) tensors["model.module." + name] = tensor;
  EXPECT_TRUE(has_roberta_names(tensors));
  EXPECT_THAT(refusal_of_roberta(tensors),
              HasSubstr("Its names seem to begin with 'model.module.': give it as --prefix."));
}

TEST(RobertaOnnx, NeedsFloatingPointNumbers) {
  auto tensors = tensors_of(kConfig.options);
  tensors["classifier.dense.bias"].type = ElementType::int64;
  EXPECT_THAT(refusal_of_roberta(tensors),
              HasSubstr("'classifier.dense.bias' is I64 of shape [4] instead of F32, F16, BF16 or F64. "));
}

TEST(RobertaOnnx, SaysWhatItsOutputMeans) {
  auto config = kConfig;
  config.options.task = models::RobertaTask::multi_label;
  config.classes = {"a", "\"b\"", "c"};
  const auto metadata = roberta_onnx(tensors_of(config.options), "f.safetensors", config).metadata;
  EXPECT_EQ(metadata, (std::map<std::string, std::string>{{"classes", R"(["a","\"b\"","c"])"},
                                                          {"max_tokens", "6"},
                                                          {"problem_type", "multi_label_classification"}}));
}

}  // namespace
}  // namespace libtrain::checkpoint_tool
