// Teaches a RoBERTa to classify texts, on any number of ranks:
//
//   mpirun -n 2 train_text_classification --recipe reviews                       reviews that come with libtrain
//   mpirun -n 8 train_text_classification --weights roberta-base --data SST-2    one of GLUE's tasks
//   mpirun -n 8 train_text_classification --recipe pretrain --tokenizer FOLDER --data texts --train a.txt --dev b.txt
//
// The data, in a local folder or at a URI, are CSV, TSV, JSON lines or Parquet files. --weights is a folder as Hugging
// Face has them: config.json, model.safetensors or pytorch_model.bin, tokenizer.json or vocab.json with merges.txt. The
// result is one, too: model in the folder --output, for classify_text.

#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <libtrain/libtrain.hpp>
#include <libtrain/models/roberta/roberta.hpp>

#include "../roberta_folder.hpp"
#include "recipes.hpp"
#include "text_data.hpp"

namespace lt = libtrain;
namespace ltd = libtrain::data;
namespace models = libtrain::models;

namespace {

using models::RobertaTask;
using Loader = ltd::DataLoaderOf<ltd::PackedTokens>;

// ---- The network

lt::Tokenizer open_tokenizer(const lt::Context& context) {
  const auto folder = context.option("tokenizer").empty() ? context.option("weights") : context.option("tokenizer");
  if (!folder.empty()) return lt::read_tokenizer(folder);
  throw lt::UsageError(
      "No tokenizer. Give a folder with one as --weights or --tokenizer; libtrain-tokenizer train makes one from texts.");
}

// That of --weights, or a new one; with the classes of the data.
models::RobertaConfig make_config(const lt::Context& context, const ltd::LabelledTexts& texts,
                                  const lt::Tokenizer& tokenizer) {
  const auto weights = context.option("weights");
  models::RobertaConfig config;
  if (!weights.empty()) {
    config = models::read_roberta_config(weights);
    if (tokenizer.vocabulary_size() > config.options.vocabulary) {
      throw lt::UsageError(lt::text("The tokenizer has ", tokenizer.vocabulary_size(), " tokens, but the weights in '",
                                    weights, "' are for ", config.options.vocabulary, ". Give theirs as --tokenizer."));
    }
  } else {
    if (context.option("model").empty()) {
      throw lt::UsageError(
          "Nothing to train. Give --weights, a folder with a RoBERTa, or --model tiny, base or large for a new one.");
    }
    config.options = models::roberta_options(context.option("model"), {.vocabulary = tokenizer.vocabulary_size()});
    const auto& special = tokenizer.special_tokens();
    config.options.pad_id = special.pad.value_or(config.options.pad_id);
    config.begin_id = special.bos.value_or(config.begin_id);
    config.end_id = special.eos.value_or(config.end_id);
  }
  auto& options = config.options;
  options.recompute_layers = context.flag("recompute-layers");
  options.dropout = context.number("dropout", 0, 1);
  options.attention_dropout = options.dropout;
  options.classifier_dropout.reset();
  config.masked_lm = is_masked_lm(context);
  if (config.masked_lm) return config;
  options.task = task_of(context);
  config.classes = texts.classes();
  options.classes = options.task == RobertaTask::regression ? 1 : std::ssize(config.classes);
  if (options.classes < 2 && options.task == RobertaTask::single_label) {
    throw lt::UsageError("All texts of --train have the label '" + config.classes.front() +
                         "'. A classifier needs two classes or more.");
  }
  return config;
}

// Without the classifier, unless it is one of the same classes.
void load_initial_weights(const lt::Context& context, torch::nn::Module& model, const models::RobertaConfig& config) {
  const auto weights = context.option("weights");
  if (weights.empty()) return;
  const auto theirs = models::read_roberta_config(weights);
  const bool same_head = theirs.masked_lm == config.masked_lm &&
                         (config.masked_lm || (theirs.classes == config.classes && !config.classes.empty() &&
                                               theirs.options.task == config.options.task));
  load_roberta(model, config, weights, same_head ? RobertaHead::loaded : RobertaHead::replaced);
}

models::PackedTexts texts_of(const ltd::PackedTokens& batch) {
  return models::packed_texts(batch.ids, batch.offsets);
}

// ---- Training

lt::Precision precision(lt::Context& context) {
  const auto word = context.choice("precision", {"auto", "float32", "bfloat16", "float16"});
  if (word == "bfloat16") return lt::Precision::bfloat16;
  if (word == "float16") return lt::Precision::float16;
  return word == "auto" ? lt::fastest_precision(context.communicator(), context.device()) : lt::Precision::float32;
}

// Up over the first steps, then down to 0 in a straight line.
lt::optim::Schedule schedule(const lt::Context& context, const lt::TrainingLength& length) {
  const auto warm_up = std::llround(context.number("warmup", 0, 1) * static_cast<double>(length.steps));
  const auto decay = lt::optim::polynomial_decay({.steps = std::max<std::int64_t>(1, length.steps - warm_up)});
  return lt::optim::warm_up({.steps = warm_up}, [decay, warm_up](std::int64_t step) { return decay(step - warm_up); });
}

lt::TrainerOptions trainer_options(lt::Context& context) {
  lt::TrainerOptions options{
      .epochs = context.integer("epochs", 1, 100000),
      .max_steps = context.integer("max-steps", 0),
      .accumulate = context.integer("accumulate", 1, 100000),
      .precision = precision(context),
      .schedule = [&context](const lt::TrainingLength& length) { return schedule(context, length); }};
  options.synchronizer.non_finite =
      options.precision == lt::Precision::float16 ? lt::NonFinite::skipped : lt::NonFinite::fatal;
  if (context.number("max-gradient-norm", 0) > 0) options.max_gradient_norm = context.number("max-gradient-norm", 0);
  return options;
}

ltd::LoaderOptions loader_options(const lt::Context& context, const ltd::TokenizedTexts& texts) {
  ltd::LoaderOptions options{.batch_size = static_cast<std::uint64_t>(context.integer("batch-size", 1)),
                             .workers = static_cast<int>(context.integer("workers", 0, 1024))};
  options.max_tokens = static_cast<std::uint64_t>(context.integer("max-tokens", 0));
  options.lengths = texts.lengths();
  return options;
}

ltd::LoaderOptions evaluation_options(const lt::Context& context, const ltd::TokenizedTexts& texts) {
  auto options = loader_options(context, texts);
  options.order = ltd::Order::sequential;
  options.remainder = ltd::Remainder::exact;
  return options;
}

// Trains `model`, of which `measure` and `step` compute what the objective asks for.
template <typename Model, typename Evaluate, typename Step>
void fit(lt::Context& context, const Model& model, const models::RobertaConfig& config, const lt::Tokenizer& tokenizer,
         Loader& loader, const std::pair<std::string, bool>& metric, bool evaluates, Evaluate evaluate, Step step) {
  load_initial_weights(context, *model, config);
  model->to(context.device());
  const auto adam = torch::optim::AdamWOptions(context.number("learning-rate", 0))
                        .betas({context.number("adam-beta1", 0, 1), context.number("adam-beta2", 0, 1)})
                        .eps(context.number("adam-epsilon", 0))
                        .weight_decay(context.number("weight-decay", 0));
  lt::optim::FusedAdamW optimizer{lt::optim::parameter_groups(*model, adam), adam};
  auto options = trainer_options(context);
  if (evaluates) {
    options.checkpoints.metric = metric.first;
    options.checkpoints.best =
        metric.second ? lt::CheckpointRetention::Best::highest : lt::CheckpointRetention::Best::lowest;
  }
  lt::Trainer trainer{context, model, optimizer, options};
  if (evaluates) trainer.evaluate_with(evaluate);
  trainer.fit(loader, step);
  context.progress().print(ltd::describe(loader.statistics()));
  if (context.rank() != 0) return;

  const auto best = trainer.best_checkpoint();
  if (!best.empty()) lt::load_weights(*model, (best / "model.safetensors").string());
  const auto folder = context.output_directory() / "model";
  std::filesystem::create_directories(folder);
  lt::save_weights(*model, (folder / "model.safetensors").string());
  lt::write_tokenizer(tokenizer, folder.string());
  models::write_roberta_config(config, folder.string());
}

// ---- Classification

// What the held-out texts should be and what they were taken for, of all ranks, each once: rows of [predicted, wanted]
// with a loss at the end. Undefined if the run was asked to stop.
torch::Tensor gather_rows(lt::Context& context, const torch::Tensor& rows) {
  const auto mine = rows.to(torch::kCPU, torch::kDouble).contiguous();
  const auto bytes = context.communicator().all_gather_bytes(
      {static_cast<const char*>(mine.const_data_ptr()), static_cast<std::size_t>(mine.nbytes())});
  const auto all = lt::join(bytes, "");
  const auto width = rows.size(1);
  auto result = torch::empty({static_cast<std::int64_t>(all.size() / sizeof(double)) / width, width}, torch::kDouble);
  std::memcpy(result.mutable_data_ptr(), all.data(), all.size());
  return result;
}

void train_classifier(lt::Context& context, const lt::Tokenizer& tokenizer, ltd::LabelledTexts texts,
                      std::optional<ltd::LabelledTexts> held_out) {
  const auto config = make_config(context, texts, tokenizer);
  const auto max_tokens = max_length(context, config);
  const auto set = tokenize(context, std::move(texts), tokenizer, max_tokens);
  Loader loader(set, ltd::pack_tokens, loader_options(context, set), context.shard());
  std::optional<ltd::TokenizedTexts> held_out_set;
  std::optional<Loader> held_out_loader;
  if (held_out) {
    held_out_set.emplace(tokenize(context, std::move(*held_out), tokenizer, max_tokens));
    held_out_loader.emplace(*held_out_set, ltd::pack_tokens, evaluation_options(context, *held_out_set), context.shard());
  }
  models::RobertaForClassification model(config.options);
  const auto task = config.options.task;

  const auto evaluate = [&](const std::function<bool()>& must_stop) -> std::optional<std::map<std::string, double>> {
    std::vector<torch::Tensor> rows;
    double loss = 0;
    for (const auto& batch : held_out_loader->epoch(0)) {
      if (must_stop()) return std::nullopt;
      if (batch.labels.size(0) == 0) continue;
      const auto logits = model->forward(texts_of(batch)).to(torch::kFloat);
      rows.push_back(measure(task, logits, batch.labels));
    }
    return summarize(task, gather_rows(context, torch::cat(rows)));
  };
  fit(context, model, config, tokenizer, loader, best_metric(context, task), held_out.has_value(), evaluate,
      [&](const ltd::PackedTokens& batch) {
        return models::classification_loss(task, model->forward(texts_of(batch)), batch.labels);
      });
}
