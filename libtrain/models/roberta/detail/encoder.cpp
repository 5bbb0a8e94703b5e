#include <libtrain/models/roberta/detail/encoder.hpp>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <libtrain/base/splitmix.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/models/roberta/detail/layer_kernels.hpp>
#include <libtrain/models/roberta/detail/recompute.hpp>

namespace libtrain::models::detail {

namespace {

using libtrain::detail::combine_keys;

void require_texts(bool is_right, const std::string& what) {
  if (!is_right) throw std::invalid_argument(what);
}

void check_texts(const PackedTexts& texts, const RobertaOptions& options) {
  require_texts(texts.ids.dim() == 1 && texts.ids.scalar_type() == at::kLong,
                text("Token ids are ", texts.ids.scalar_type(), " [", join(texts.ids.sizes(), ", "),
                     "]. Give int64 [tokens], or a padded batch to unpadded_texts()."));
  std::int64_t tokens = 0;
  for (std::size_t k = 0; k < texts.lengths.size(); ++k) {
    const auto length = texts.lengths[k];
    require_texts(length >= 1, text("Text ", k, " of the batch has ", length, " tokens. It needs at least <s>."));
    require_texts(length <= options.max_tokens(),
                  text("Text ", k, " of the batch has ", length, " tokens, but the model has positions for ",
                       options.max_tokens(), ". Truncate it when it is tokenized."));
    tokens += length;
  }
  require_texts(tokens == texts.ids.numel(), text("The texts of the batch have ", tokens, " tokens together, but ",
                                                  texts.ids.numel(), " ids. Give one id for each token."));
  if (!texts.ids.is_cpu()) return;  // reading them would wait for the device, which checks them itself
  const auto ids = texts.ids.contiguous();
  const auto* id = ids.const_data_ptr<std::int64_t>();
  for (std::int64_t k = 0; k < tokens; ++k) {
    require_texts(
        id[k] >= 0 && id[k] < options.vocabulary,
        text("Token ", k, " of the batch has the id ", id[k], ", but the model's vocabulary has ids from 0 to ",
             options.vocabulary - 1, ". Use the tokenizer that belongs to the weights."));
  }
}

// As transformers counts them: tokens with the id of padding get its position, and are not counted. The host does not
// wait for the ids of a device.
at::Tensor positions_of(const PackedTexts& texts, std::int64_t pad_id) {
  std::vector<std::int64_t> first_tokens;  // of each token's text
  for (const auto length : texts.lengths) {
    first_tokens.insert(first_tokens.end(), static_cast<std::size_t>(length), std::ssize(first_tokens));
  }
  const auto counts = texts.ids.ne(pad_id).to(at::kLong);
  const auto sums = counts.cumsum(0);
  const auto before = (sums - counts).index_select(0, at::tensor(first_tokens, at::kLong).to(sums.device()));
  return (sums - before) * counts + pad_id;
}

// How many of the rows belong to each text.
std::vector<std::int64_t> rows_of_texts(const PackedTexts& texts, const at::Tensor& rows) {
  const auto on_host = rows.cpu().contiguous();
  const auto* row = on_host.const_data_ptr<std::int64_t>();
  const auto* end = row + on_host.numel();
  std::vector<std::int64_t> counts;
  std::int64_t first = 0, last = -1;
  for (const auto length : texts.lengths) {
    counts.push_back(0);
    for (; row != end && *row < first + length; ++row, ++counts.back()) {
      require_texts(*row > last, text("Token ", *row, " follows token ", last, ". Give tokens in ascending order."));
      last = *row;
    }
    first += length;
  }
  require_texts(row == end, text("Token ", row == end ? 0 : *row, " was asked for, but the batch has ", first, "."));
  return counts;
}

// The type of activations between layers.
at::ScalarType compute_type(const at::Tensor& weights) {
  const auto device = weights.device().type();
  return at::autocast::is_autocast_enabled(device) ? at::autocast::get_autocast_dtype(device) : weights.scalar_type();
}

std::uint64_t draw_seed() {
  auto* generator =
      at::get_generator_or_default<at::CPUGeneratorImpl>(std::nullopt, at::detail::getDefaultCPUGenerator());
  const std::scoped_lock lock(generator->mutex_);
  return generator->random64();
}

}  // namespace

LayerDropout draw_dropout(const RobertaOptions& options) {
  const auto seed = draw_seed();
  return {.probabilities = {options.attention_dropout, combine_keys(seed, 0)},
          .attended = {options.dropout, combine_keys(seed, 1)},
          .output = {options.dropout, combine_keys(seed, 2)}};
}

AffineImpl::AffineImpl(std::int64_t inputs, std::int64_t outputs)
    : weight(register_parameter("weight", at::empty({outputs, inputs}, at::kFloat))),
      bias(register_parameter("bias", at::empty({outputs}, at::kFloat))) {}

at::Tensor AffineImpl::forward(const at::Tensor& inputs) const {
  return at::linear(inputs, weight, bias);
}

NormImpl::NormImpl(std::int64_t width, double epsilon_in)
    : weight(register_parameter("weight", at::empty({width}, at::kFloat))),
      bias(register_parameter("bias", at::empty({width}, at::kFloat))),
      epsilon(epsilon_in) {}

namespace {

// The parts of a layer, in the order in which they register a matrix or scale, and a bias or shift.
enum Part { kQuery, kKey, kValue, kAttended, kAttentionNorm, kUp, kDown, kOutputNorm };

// What a layer computes with its parameters, and how.
struct LayerCall {
  at::Tensor operator()(const at::Tensor& states, const std::vector<at::Tensor>& parameters) const {
    const auto weight = [&](Part part) { return parameters[2 * static_cast<std::size_t>(part)]; };
    const auto bias = [&](Part part) { return parameters[2 * static_cast<std::size_t>(part) + 1]; };
    const auto affine = [&](Part part, const at::Tensor& inputs) {
      return at::linear(inputs, weight(part), bias(part));
    };
    const auto asking = rows.defined() ? states.index_select(0, rows) : states;
    const auto mixed = attend(affine(kQuery, asking), affine(kKey, states), affine(kValue, states), text_rows, heads,
                              dropout.probabilities);
    const auto attention = add_and_norm(at::linear(mixed, weight(kAttended)), bias(kAttended), asking,
                                        weight(kAttentionNorm), bias(kAttentionNorm), norm_epsilon, dropout.attended);
    return add_and_norm(feed_forward(attention, weight(kUp), bias(kUp), weight(kDown)), bias(kDown), attention,
                        weight(kOutputNorm), bias(kOutputNorm), norm_epsilon, dropout.output);
  }

  const TextRows text_rows;
  const at::Tensor rows;  // whose states are computed; undefined for all
  const std::int64_t heads;
  const double norm_epsilon;
  const LayerDropout dropout;
};

}  // namespace

struct RobertaEncoderImpl::Layer : public torch::nn::Module {
  explicit Layer(const RobertaOptions& options) {
    const auto width = options.hidden;
    const auto part = [](Module& parent, const std::string& name) {
      return parent.register_module(name, std::make_shared<Module>());
    };
    const auto affine = [](Module& parent, const std::string& name, std::int64_t inputs, std::int64_t outputs) {
      parent.register_module(name, std::make_shared<AffineImpl>(inputs, outputs));
    };
    const auto norm = [&](Module& parent) {
      parent.register_module("LayerNorm", std::make_shared<NormImpl>(width, options.norm_epsilon));
    };
    const auto attention = part(*this, "attention");
    const auto self = part(*attention, "self");
    for (const char* name : {"query", "key", "value"}) affine(*self, name, width, width);
    const auto attention_output = part(*attention, "output");
    affine(*attention_output, "dense", width, width);
    norm(*attention_output);
    affine(*part(*this, "intermediate"), "dense", width, options.feed_forward);
    const auto output = part(*this, "output");
    affine(*output, "dense", options.feed_forward, width);
    norm(*output);
  }
};

RobertaEncoderImpl::RobertaEncoderImpl(const RobertaOptions& options) : options_(options) {
  const auto embeddings = register_module("embeddings", std::make_shared<Module>());
  const auto table = [&](const std::string& name, std::int64_t rows) {
    const auto parent = embeddings->register_module(name, std::make_shared<Module>());
    return parent->register_parameter("weight", at::empty({rows, options.hidden}, at::kFloat));
  };
  words_ = table("word_embeddings", options.vocabulary);
  positions_ = table("position_embeddings", options.positions);
  token_types_ = table("token_type_embeddings", options.token_types);
  norm_ = embeddings->register_module("LayerNorm", std::make_shared<NormImpl>(options.hidden, options.norm_epsilon));
  const auto encoder = register_module("encoder", std::make_shared<Module>());
  const auto layers = encoder->register_module("layer", std::make_shared<Module>());
  for (std::int64_t k = 0; k < options.layers; ++k) {
    layers_.push_back(layers->register_module(std::to_string(k), std::make_shared<Layer>(options)));
  }
}

at::Tensor RobertaEncoderImpl::embed(const PackedTexts& texts) {
  const auto pad = options_.pad_id;
  const auto sum = at::embedding(words_, texts.ids, pad) + at::embedding(positions_, positions_of(texts, pad), pad) +
                   token_types_.select(0, 0);
  const auto normed =
      at::layer_norm(sum, {options_.hidden}, norm_->weight, norm_->bias, norm_->epsilon).to(compute_type(words_));
  return at::dropout(normed, options_.dropout, is_training());
}

at::Tensor RobertaEncoderImpl::forward(const PackedTexts& texts, const at::Tensor& rows) {
  check_texts(texts, options_);
  const TextRows all{texts.lengths, texts.lengths};
  const TextRows some = rows.defined() ? TextRows{texts.lengths, rows_of_texts(texts, rows)} : all;
  const auto rows_there = rows.defined() ? rows.to(texts.ids.device()) : rows;
  auto states = embed(texts);
  for (const auto& layer : layers_) {
    const bool is_last = layer == layers_.back();
    const LayerCall call{is_last ? some : all, is_last ? rows_there : at::Tensor(), options_.heads,
                         options_.norm_epsilon, is_training() ? draw_dropout(options_) : LayerDropout()};
    const auto parameters = layer->parameters();
    const bool uses_generator = is_training() && !has_cpu_kernels(states);
    states = options_.recompute_layers ? recompute_in_backward(call, states, parameters, uses_generator)
                                       : call(states, parameters);
  }
  return states;
}

namespace {

// A new model's 124 million numbers on all threads: Tensor::normal_ uses one.
void fill_normal(const at::Tensor& tensor, double deviation, std::uint64_t key) {
  constexpr std::int64_t kBlock = 1 << 16;
  const auto count = tensor.numel();
  auto* const numbers = tensor.mutable_data_ptr<float>();
  at::parallel_for(0, (count + kBlock - 1) / kBlock, 1, [&](std::int64_t begin, std::int64_t end) {
    const auto first = begin * kBlock;
    normal_numbers(numbers + first, first, std::min(end * kBlock, count) - first, deviation, key);
  });
}

}  // namespace

void initialize_roberta(torch::nn::Module& model, const RobertaOptions& options) {
  const c10::NoGradGuard no_grad;
  const auto seed = draw_seed();
  std::uint64_t number = 0;
  for (const auto& item : model.named_parameters()) {
    const auto& name = item.key();
    auto parameter = item.value();
    const bool is_norm = name.find("LayerNorm.") != std::string::npos || name.find("layer_norm.") != std::string::npos;
    if (name.ends_with("bias")) {
      parameter.zero_();
    } else if (is_norm) {
      parameter.fill_(1);
    } else {
      const auto key = combine_keys(seed, number++);
      if (options.draw_encoder || !name.starts_with("roberta.")) fill_normal(parameter, options.initial_deviation, key);
    }
    if (name.ends_with("word_embeddings.weight") || name.ends_with("position_embeddings.weight")) {
      parameter.select(0, options.pad_id).zero_();
    }
  }
}

}  // namespace libtrain::models::detail
