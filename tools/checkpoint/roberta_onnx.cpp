#include <tools/checkpoint/roberta_onnx.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string_view>
#include <vector>

#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/detail/metadata_values.hpp>

#include <tools/checkpoint/onnx_graph.hpp>

namespace libtrain::checkpoint_tool {

namespace {

using Integers = std::vector<std::int64_t>;

constexpr const char* kClassifierAdvice =
    "Give the weights and the config.json of one RobertaForSequenceClassification, by transformers' names, which "
    "--prefix and --rename can make of others.";

// What files have besides the weights of the classifier: parts that it does not use, and tables that older versions of
// transformers stored.
constexpr std::array<std::string_view, 4> kUnused{"roberta.pooler.", "lm_head.", "roberta.embeddings.position_ids",
                                                  "roberta.embeddings.token_type_ids"};

// The states of the tokens are rows of a matrix, [N * S, width], because onnxruntime computes a layer's matrices
// fastest as Gemm, which takes them as they are stored; with MatMul and Add on transposed ones it also loads the model
// more slowly. Norms and GELU are written in the operators of opset 13, which onnxruntime replaces by those of opset 17
// and 20, with about the same times and errors. Of the last layer, only the first token of each text is computed.
class RobertaGraph : public OnnxGraph {
 public:
  explicit RobertaGraph(const models::RobertaOptions& options, std::int64_t layers)
      : options_(options), head_width_(options.hidden / options.heads) {
    model_.name = "RoBERTa";
    const auto tokens = [](const char* name) {
      return OnnxValue{.name = name, .type = ElementType::int64, .shape = {"N", "S"}};
    };
    model_.inputs = {tokens("input_ids"), tokens("attention_mask")};
    model_.output = {.name = "logits", .shape = {"N", options.classes}};
    add_constants();
    auto states = embeddings();
    for (std::int64_t i = 0; i + 1 < layers; ++i) states = layer(i, states, states, "shape_by_head");
    states = layer(layers - 1, states, first_tokens(states), "first_shape_by_head");
    const auto dense =
        add("Tanh", "classifier.tanh", {affine("classifier.dense", states, options.hidden, options.hidden)});
    affine("classifier.out_proj", dense, options.hidden, options.classes, model_.output.name);
  }

 private:
  template <typename Value>
  void constant(const std::string& name, const Value& value) {
    const char* kind = std::is_same_v<Value, float>          ? "value_float"
                       : std::is_same_v<Value, std::int64_t> ? "value_int"
                                                             : "value_ints";
    add("Constant", name, {}, {{.name = kind, .value = value}});
  }

  void add_constants() {
    constant("integer_0", std::int64_t{0});
    constant("integer_1", std::int64_t{1});
    constant("pad_id", options_.pad_id);
    constant("float_0", 0.0F);
    constant("float_half", 0.5F);
    constant("float_1", 1.0F);
    constant("float_2", 2.0F);
    constant("root_of_2", std::sqrt(2.0F));
    constant("root_of_head_width", std::sqrt(static_cast<float>(head_width_)));
    constant("norm_epsilon", static_cast<float>(options_.norm_epsilon));
    constant("lowest", std::numeric_limits<float>::lowest());

    constant("width", Integers{options_.hidden});
    constant("rows", Integers{-1, options_.hidden});
    constant("heads", Integers{options_.heads, head_width_});
    constant("first_shape_by_head", Integers{0, 1, options_.heads, head_width_});
    add("Shape", "batch_shape", {"input_ids"});
    add("Concat", "shape", {"batch_shape", "width"}, {{.name = "axis", .value = std::int64_t{0}}});
    add("Concat", "shape_by_head", {"batch_shape", "heads"}, {{.name = "axis", .value = std::int64_t{0}}});

    // What is added to the scores [N, heads, queries, S] of a text's tokens.
    constant("middle_axes", Integers{1, 2});
    add("Equal", "is_masked", {"attention_mask", "integer_0"});
    add("Where", "token_penalty", {"is_masked", "lowest", "float_0"});
    add("Unsqueeze", "penalty", {"token_penalty", "middle_axes"});
  }

  // A matrix, stored as [outputs, inputs], and a bias.
  std::string affine(const std::string& name, const std::string& input, std::int64_t inputs, std::int64_t outputs,
                     const std::string& output = {}) {
    const auto weight = add_weight(name + ".weight", {outputs, inputs});
    const auto bias = add_weight(name + ".bias", {outputs});
    return add("Gemm", output.empty() ? name : output, {input, weight, bias},
               {{.name = "transB", .value = std::int64_t{1}}});
  }

  std::string mean(const std::string& name, const std::string& input) {
    return add("ReduceMean", name, {input}, {{.name = "axes", .value = Integers{-1}}});
  }

  std::string norm(const std::string& name, const std::string& input) {
    const auto weight = add_weight(name + ".weight", {options_.hidden});
    const auto bias = add_weight(name + ".bias", {options_.hidden});
    const auto centered = add("Sub", name + ".centered", {input, mean(name + ".mean", input)});
    const auto variance = mean(name + ".variance", add("Pow", name + ".squares", {centered, "float_2"}));
    const auto deviation =
        add("Sqrt", name + ".deviation", {add("Add", name + ".above_0", {variance, "norm_epsilon"})});
    const auto normalized = add("Div", name + ".normalized", {centered, deviation});
    return add("Add", name, {add("Mul", name + ".scaled", {normalized, weight}), bias});
  }

  std::string gelu(const std::string& name, const std::string& input) {
    const auto erf = add("Erf", name + ".erf", {add("Div", name + ".argument", {input, "root_of_2"})});
    const auto twice = add("Mul", name + ".twice", {input, add("Add", name + ".erf_and_1", {erf, "float_1"})});
    return add("Mul", name, {twice, "float_half"});
  }

  std::string table(const std::string& name, std::int64_t rows, const std::string& numbers) {
    const auto scope = "roberta.embeddings." + name;
    return add("Gather", scope, {add_weight(scope + ".weight", {rows, options_.hidden}), numbers});
  }

  std::string embeddings() {
    // Tokens are numbered from pad_id + 1 on, and padding has the number pad_id.
    add("Equal", "is_padding", {"input_ids", "pad_id"});
    add("Where", "is_token", {"is_padding", "integer_0", "integer_1"});
    add("CumSum", "count", {"is_token", "integer_1"});
    add("Mul", "number", {"count", "is_token"});
    add("Add", "position_ids", {"number", "pad_id"});
    const auto words = table("word_embeddings", options_.vocabulary, "input_ids");
    const auto positions = table("position_embeddings", options_.positions, "position_ids");
    const auto types = table("token_type_embeddings", options_.token_types, "integer_0");
    const auto sum = add("Add", "embeddings", {add("Add", "words_and_positions", {words, positions}), types});
    return norm("roberta.embeddings.LayerNorm", add("Reshape", "embedding_rows", {sum, "rows"}));
  }

  std::string first_tokens(const std::string& states) {
    return add("Gather", "first_tokens", {add("Reshape", "states_by_text", {states, "shape"}), "integer_0"},
               {{.name = "axis", .value = std::int64_t{1}}});
  }

  std::string by_head(const std::string& name, const std::string& input, const std::string& shape,
                      const Integers& axes) {
    const auto rows = affine(name, input, options_.hidden, options_.hidden);
    return add("Transpose", name + ".transposed", {add("Reshape", name + ".by_head", {rows, shape})},
               {{.name = "perm", .value = axes}});
  }

  // Of the tokens `queries`, whose shape by head is given.
  std::string layer(std::int64_t number, const std::string& states, const std::string& queries,
                    const std::string& shape) {
    const auto scope = text("roberta.encoder.layer.", number, '.');
    const auto inner = scope + "attention.self.";
    const auto query = by_head(inner + "query", queries, shape, {0, 2, 1, 3});
    const auto key = by_head(inner + "key", states, "shape_by_head", {0, 2, 3, 1});
    const auto value = by_head(inner + "value", states, "shape_by_head", {0, 2, 1, 3});
    const auto products = add("MatMul", inner + "products", {query, key});
    const auto scores = add("Div", inner + "scores", {products, "root_of_head_width"});
    const auto probabilities =
        add("Softmax", inner + "probabilities", {add("Add", inner + "masked", {scores, "penalty"})},
            {{.name = "axis", .value = std::int64_t{-1}}});
    const auto context =
        add("Transpose", inner + "transposed", {add("MatMul", inner + "context", {probabilities, value})},
            {{.name = "perm", .value = Integers{0, 2, 1, 3}}});
    const auto attended = affine(scope + "attention.output.dense", add("Reshape", inner + "rows", {context, "rows"}),
                                 options_.hidden, options_.hidden);
    const auto middle =
        norm(scope + "attention.output.LayerNorm", add("Add", scope + "attention.output.sum", {attended, queries}));
    const auto wide = affine(scope + "intermediate.dense", middle, options_.hidden, options_.feed_forward);
    const auto output =
        affine(scope + "output.dense", gelu(scope + "intermediate.gelu", wide), options_.feed_forward, options_.hidden);
    return norm(scope + "output.LayerNorm", add("Add", scope + "output.sum", {output, middle}));
  }

  const models::RobertaOptions& options_;
  const std::int64_t head_width_;
};

const char* problem_type(models::RobertaTask task) {
  if (task == models::RobertaTask::multi_label) return "multi_label_classification";
  return task == models::RobertaTask::regression ? "regression" : "single_label_classification";
}

}  // namespace

bool has_roberta_names(const std::map<std::string, TensorInfo>& tensors) {
  return std::ranges::any_of(tensors, [](const auto& entry) {
    return entry.first.find("roberta.") != std::string::npos ||
           entry.first.find("word_embeddings.") != std::string::npos;
  });
}

OnnxModel roberta_onnx(const std::map<std::string, TensorInfo>& tensors, const std::string& path,
                       const models::RobertaConfig& config) {
  const auto& options = config.options;
  // A layer beyond the number of tensors is missing anyway: this bounds the graph of a wrong config.json.
  const auto layers = std::min(options.layers, std::ssize(tensors) + 1);
  auto model = RobertaGraph{options, layers}.take();
  std::set<std::string> unused;
  for (const auto& [name, tensor] : tensors) {
    if (std::ranges::any_of(kUnused, [&](auto beginning) { return name.starts_with(beginning); })) unused.insert(name);
  }
  require_weights(
      model, tensors, unused,
      text("'", path, "' does not have the weights of the RoBERTa classifier that its config.json describes"),
      advice_on_names(tensors, "roberta.embeddings.word_embeddings.weight", kClassifierAdvice));
  model.metadata = {{"problem_type", problem_type(options.task)}, {"max_tokens", text(options.max_tokens())}};
  if (!config.classes.empty()) model.metadata["classes"] = detail::names_to_json(config.classes, "a class");
  return model;
}

}  // namespace libtrain::checkpoint_tool
