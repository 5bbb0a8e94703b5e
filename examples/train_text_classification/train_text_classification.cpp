// Teaches a RoBERTa to classify texts, on any number of ranks:
//
//   mpirun -n 2 train_text_classification --recipe reviews                       reviews that come with libtrain
//   mpirun -n 2 train_text_classification --weights roberta-base --data SST-2 --batch-size 16    one of GLUE's tasks
//   train_text_classification --weights FOLDER --data SST-2 --test-only            the metrics of given weights
//   mpirun -n 8 train_text_classification --recipe pretrain --tokenizer FOLDER --data texts --train a.txt --dev b.txt
//
// The data, in a local folder or at a URI, are CSV, TSV, JSON lines or Parquet files. --weights is a folder as Hugging
// Face has them: config.json, model.safetensors or pytorch_model.bin, tokenizer.json or vocab.json with merges.txt. The
// result is one, too: model in the folder --output, for classify_text.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
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

constexpr std::size_t kNoLimit = 1 << 30;  // tokens

// ---- The network

std::string tokenizer_folder(const lt::Context& context) {
  return context.option(context.option("tokenizer").empty() ? "weights" : "tokenizer");
}

lt::Tokenizer open_tokenizer(const lt::Context& context) {
  const auto folder = tokenizer_folder(context);
  if (!folder.empty()) return lt::read_tokenizer(folder);
  throw lt::UsageError(
      "No tokenizer. Give a folder with one as --weights or --tokenizer; libtrain-tokenizer train makes one from "
      "texts.");
}

// That of --weights, or a new one; with the classes of the data.
models::RobertaConfig make_config(const lt::Context& context, const std::vector<std::string>& classes,
                                  const lt::Tokenizer& tokenizer) {
  const auto weights = context.option("weights");
  models::RobertaConfig config;
  if (!weights.empty()) {
    config = read_roberta_folder(weights);
    require_tokenizer_of(weights, config, tokenizer, tokenizer_folder(context));
  } else {
    if (context.option("model").empty()) {
      throw lt::UsageError(
          "Nothing to train. Give --weights, a folder with a RoBERTa, or --model tiny, base or large for a new one.");
    }
    config.options = models::roberta_options(context.choice("model", models::roberta_names()),
                                             {.vocabulary = tokenizer.vocabulary_size()});
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
  config.classes = classes;
  options.classes = options.task == RobertaTask::regression ? 1 : std::ssize(config.classes);
  if (options.classes == 0) throw lt::UsageError("No text of --train has a label. Check --label-column.");
  return config;
}

// Whether both have a head for the same: a language model, or a classifier of the same classes.
bool have_same_head(const models::RobertaConfig& one, const models::RobertaConfig& other) {
  if (one.masked_lm || other.masked_lm) return one.masked_lm == other.masked_lm;
  const auto names = [](const models::RobertaConfig& config) {
    auto all = config.classes;
    for (std::int64_t k = std::ssize(all); k < config.options.classes; ++k) all.push_back(lt::text("LABEL_", k));
    return all;
  };
  const bool same_task = one.options.task == other.options.task && one.options.classes == other.options.classes;
  return same_task && (one.options.task == RobertaTask::regression || names(one) == names(other));
}

void load_initial_weights(lt::Context& context, torch::nn::Module& model, const models::RobertaConfig& config) {
  const auto weights = context.option("weights");
  if (weights.empty()) return;
  const bool same_head = have_same_head(models::read_roberta_config(weights), config);
  load_roberta(model, config, weights, same_head ? RobertaHead::loaded : RobertaHead::replaced);
  if (!same_head) context.progress().print("The head of the network is new: that of --weights is for another task.");
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
  if (options.max_tokens > 0) options.lengths = texts.lengths();
  return options;
}

ltd::LoaderOptions evaluation_options(const lt::Context& context, const ltd::TokenizedTexts& texts) {
  auto options = loader_options(context, texts);
  options.order = ltd::Order::sequential;
  options.remainder = ltd::Remainder::exact;
  return options;
}

// The values of an evaluation by their names; none if the run was asked to stop.
using Evaluate = std::function<std::optional<std::map<std::string, double>>(const std::function<bool()>& must_stop)>;

struct Metric {
  std::string name;
  lt::CheckpointRetention::Best best;
};

// Trains the model, with evaluations unless `evaluate` is empty, and writes the best weights. Without a loader it only
// evaluates.
template <typename Step>
void fit(lt::Context& context, torch::nn::Module& model, const models::RobertaConfig& config,
         const lt::Tokenizer& tokenizer, std::int64_t max_tokens, Loader* loader, const Evaluate& evaluate,
         const Metric& metric, Step step) {
  if (loader == nullptr) {
    load_roberta(model, config, context.option("weights"), RobertaHead::loaded);
  } else {
    load_initial_weights(context, model, config);
  }
  model.to(context.device());
  const auto adam = torch::optim::AdamWOptions(context.number("learning-rate", 0))
                        .betas({context.number("adam-beta1", 0, 1), context.number("adam-beta2", 0, 1)})
                        .eps(context.number("adam-epsilon", 0))
                        .weight_decay(context.number("weight-decay", 0));
  lt::optim::FusedAdamW optimizer{lt::optim::parameter_groups(model, adam), adam};
  auto options = trainer_options(context);
  if (evaluate) {
    options.checkpoints.metric = metric.name;
    options.checkpoints.best = metric.best;
  }
  lt::Trainer trainer{context, model, optimizer, options};
  if (evaluate) trainer.evaluate_with(evaluate);
  if (loader == nullptr) {
    trainer.evaluate();
    return;
  }
  trainer.fit(*loader, step);
  context.progress().print(ltd::describe(loader->statistics()));
  if (context.rank() != 0) return;

  const auto best = trainer.best_checkpoint();
  if (!best.empty()) lt::load_weights(model, (best / "model.safetensors").string());
  const auto folder = context.output_directory() / "model";
  std::filesystem::create_directories(folder);
  lt::save_weights(model, (folder / "model.safetensors").string());
  lt::write_tokenizer(tokenizer, folder.string(), static_cast<std::size_t>(max_tokens));
  models::write_roberta_config(config, folder.string());
}

// ---- What is learnt

// The most tokens of a text: --max-length, or what the tokenizer says and the network takes.
std::int64_t max_tokens(const lt::Context& context, const models::RobertaConfig& config,
                        const lt::Tokenizer& tokenizer) {
  const auto taken = config.options.max_tokens();
  const auto asked = context.integer("max-length", 0);
  const auto limit = static_cast<std::int64_t>(tokenizer.max_tokens().value_or(kNoLimit));
  const auto most = asked > 0 ? asked : std::min(limit, taken);
  const auto special = std::ssize(tokenizer.encode_pair("", "", {.max_tokens = kNoLimit}).ids);
  if (most > special && most <= taken) return most;
  throw lt::UsageError(lt::text("--max-length is ", asked, ". It must be more than ", special,
                                ", the special tokens of a pair, and at most ", taken,
                                ", what the network takes, or 0 for the tokenizer's limit."));
}

// What the best network is chosen by.
Metric metric(const lt::Context& context, RobertaTask task) {
  std::vector<std::string> names = {"accuracy", "f1", "matthews"};
  if (task == RobertaTask::multi_label) names = {"f1", "macro_f1", "accuracy"};
  if (task == RobertaTask::regression) names = {"pearson", "spearman", "mse"};
  const auto name = context.option("metric").empty() ? names.front() : context.choice("metric", names);
  return {name, name == "mse" ? lt::CheckpointRetention::Best::lowest : lt::CheckpointRetention::Best::highest};
}

// The metrics of GLUE's tasks over the held-out texts of all ranks, each once.
std::optional<std::map<std::string, double>> evaluate_classifier(models::RobertaForClassificationImpl& model,
                                                                 Loader& loader, lt::Communicator& communicator,
                                                                 const std::function<bool()>& must_stop) {
  const auto classes = model.options().classes;
  const auto task = model.options().task;
  const auto row_of = [&](const torch::Tensor& rows, std::int64_t row) {
    return std::span<const float>{rows[row].const_data_ptr<float>(), static_cast<std::size_t>(classes)};
  };
  // Calls add(logits, labels, row) for each text of a batch.
  const auto count = [&](auto& counts, const auto& add) {
    const auto add_batch = [&](const ltd::PackedTokens& batch, auto&) {
      const auto logits = model.forward(texts_of(batch)).to(torch::kCPU, torch::kFloat).contiguous();
      const auto labels = batch.labels.cpu();
      for (std::int64_t row = 0; row < logits.size(0); ++row) add(logits, labels, row);
    };
    return lt::count_every_sample(loader, communicator, counts, add_batch, must_stop);
  };
  if (task == RobertaTask::single_label) {
    lt::ClassCounts counts(classes);
    const auto add = [&](const torch::Tensor& logits, const torch::Tensor& labels, std::int64_t row) {
      counts.add(labels[row].item<std::int64_t>(), logits[row].argmax().item<std::int64_t>());
    };
    if (!count(counts, add)) return std::nullopt;
    return {{{"accuracy", counts.accuracy()},
             {"f1", classes == 2 ? counts.f1() : counts.macro_f1()},
             {"matthews", counts.matthews()}}};
  }
  if (task == RobertaTask::multi_label) {
    lt::SeveralClassCounts counts(classes);
    const auto add = [&](const torch::Tensor& logits, const torch::Tensor& labels, std::int64_t row) {
      counts.add(row_of(labels, row), row_of(logits.gt(0).to(torch::kFloat), row));
    };
    if (!count(counts, add)) return std::nullopt;
    return {{{"f1", counts.micro_f1()}, {"macro_f1", counts.macro_f1()}, {"accuracy", counts.accuracy()}}};
  }
  lt::NumberPairs counts;
  const auto add = [&](const torch::Tensor& logits, const torch::Tensor& labels, std::int64_t row) {
    counts.add(row_of(labels, row)[0], row_of(logits, row)[0]);
  };
  if (!count(counts, add)) return std::nullopt;
  return {{{"pearson", counts.pearson()}, {"spearman", counts.spearman()}, {"mse", counts.mean_squared_error()}}};
}

// A network that has seen one class would find it everywhere.
void require_classes(const ltd::LabelledTexts& texts, RobertaTask task) {
  if (task != RobertaTask::single_label) return;
  for (std::uint64_t row = 1; row < texts.size(); ++row) {
    if (texts.label(row) != texts.label(0)) return;
  }
  throw lt::UsageError("All texts of --train have the label '" +
                       texts.classes()[static_cast<std::size_t>(texts.label(0))] +
                       "'. A classifier needs texts of two classes or more.");
}

// Without `texts` it only evaluates.
void train_classifier(lt::Context& context, const lt::Tokenizer& tokenizer, std::optional<ltd::LabelledTexts> texts,
                      std::optional<ltd::LabelledTexts> held_out_texts) {
  const auto config = make_config(context, (texts ? texts : held_out_texts)->classes(), tokenizer);
  const auto task = config.options.task;
  const auto most = max_tokens(context, config, tokenizer);
  std::optional<ltd::TokenizedTexts> set, held_out_set;
  std::optional<Loader> loader, held_out;
  if (texts) {
    require_classes(*texts, task);
    set.emplace(tokenize(context, "train", std::move(*texts), tokenizer, most));
    loader.emplace(*set, ltd::pack_tokens, loader_options(context, *set), context.shard());
  }
  if (held_out_texts) {
    held_out_set.emplace(tokenize(context, "dev", std::move(*held_out_texts), tokenizer, most));
    held_out.emplace(*held_out_set, ltd::pack_tokens, evaluation_options(context, *held_out_set), context.shard());
  }
  models::RobertaForClassification model(config.options);
  Evaluate evaluate;
  if (held_out) {
    evaluate = [&](const std::function<bool()>& must_stop) {
      return evaluate_classifier(*model, *held_out, context.communicator(), must_stop);
    };
  }
  fit(context, *model, config, tokenizer, most, loader ? &*loader : nullptr, evaluate, metric(context, task),
      [&](const ltd::PackedTokens& batch) {
        return models::classification_loss(task, model->forward(texts_of(batch)), batch.labels);
      });
}

// The loss of a batch with masks: the mean over its masked tokens, and their number.
std::pair<torch::Tensor, std::int64_t> masked_loss(models::RobertaForMaskedLmImpl& model,
                                                   const ltd::PackedTokens& batch) {
  auto tokens = batch.token_labels.ne(ltd::kNoTokenLabel).nonzero().squeeze(1);
  const auto count = tokens.size(0);
  // Of special tokens alone: a loss of 0, so that this rank has gradients like the others.
  if (count == 0) tokens = torch::zeros({1}, tokens.options());
  const auto logits = model.forward(texts_of(batch), tokens);
  return {models::masked_lm_loss(logits, batch.token_labels.index_select(0, tokens)), count};
}

void train_language_model(lt::Context& context, const lt::Tokenizer& tokenizer, ltd::LabelledTexts texts,
                          std::optional<ltd::LabelledTexts> held_out_texts) {
  const auto config = make_config(context, {}, tokenizer);
  const auto& special = tokenizer.special_tokens();
  if (!special.mask) {
    throw lt::UsageError(
        "The tokenizer has no <mask>, which --objective mlm needs. Train one with libtrain-tokenizer.");
  }
  const ltd::MaskingOptions masking{
      .mask_id = *special.mask, .vocabulary_size = tokenizer.vocabulary_size(), .special_ids = tokenizer.special_ids()};
  const auto most = max_tokens(context, config, tokenizer);
  const auto set = tokenize(context, "train", std::move(texts), tokenizer, most);
  const ltd::MaskedTexts masked(set, masking);
  Loader loader(masked, ltd::pack_tokens, loader_options(context, set), context.shard());
  std::optional<ltd::TokenizedTexts> held_out_set;
  std::optional<ltd::MaskedTexts> held_out_masked;
  std::optional<Loader> held_out;
  if (held_out_texts) {
    held_out_set.emplace(tokenize(context, "dev", std::move(*held_out_texts), tokenizer, most));
    held_out_masked.emplace(*held_out_set, masking);
    held_out.emplace(*held_out_masked, ltd::pack_tokens, evaluation_options(context, *held_out_set), context.shard());
  }
  models::RobertaForMaskedLm model(config.options);
  const auto lengths = set.lengths();
  const double tokens = std::accumulate(lengths.begin(), lengths.end(), 0.0);
  const double masked_each = masking.probability * tokens / static_cast<double>(lengths.size());
  Evaluate evaluate;
  if (held_out) {
    evaluate = [&](const std::function<bool()>& must_stop) -> std::optional<std::map<std::string, double>> {
      auto sums = torch::zeros({2}, torch::kDouble);
      for (const auto& batch : held_out->epoch(0)) {
        if (must_stop()) return std::nullopt;
        if (batch.labels.size(0) == 0) continue;
        const auto [loss, count] = masked_loss(*model, batch);
        sums += torch::tensor({loss.item<double>() * static_cast<double>(count), static_cast<double>(count)});
      }
      sums = sums.to(context.device());
      context.communicator().all_reduce(sums).wait();
      return {{{"mlm_loss", (sums[0] / sums[1].clamp_min(1)).item<double>()}}};
    };
  }
  fit(context, *model, config, tokenizer, most, &loader, evaluate, {"mlm_loss", lt::CheckpointRetention::Best::lowest},
      [&](const ltd::PackedTokens& batch) {
        // Ranks count by their texts: the sum over tokens, by the number of texts and a constant, is then the same for
        // any number of ranks.
        const auto [mean, count] = masked_loss(*model, batch);
        const auto texts_of_batch = static_cast<double>(batch.labels.size(0));
        return lt::StepResult{mean * (static_cast<double>(count) / (texts_of_batch * masked_each)),
                              {{"mlm_loss", mean}}};
      });
}

// The classes of the network in --weights, by the names of --classes if that is given.
std::vector<std::string> tested_classes(const lt::Context& context) {
  const auto folder = context.option("weights");
  if (folder.empty() || context.option("dev").empty() || is_masked_lm(context)) {
    throw lt::UsageError("--test-only evaluates the classifier in --weights on the texts of --dev. Give both.");
  }
  const auto config = models::read_roberta_config(folder);
  if (config.masked_lm || config.options.task != task_of(context)) {
    throw lt::UsageError("The network in '" + folder + "' is not for --task " + context.option("task") +
                         ". Give its task, or a network that has learnt this one.");
  }
  if (config.options.task == RobertaTask::regression) return {};
  auto classes = words_of(context, "classes");
  if (classes.empty()) classes = config.classes;
  if (classes != config.classes && std::ranges::is_permutation(classes, config.classes)) {
    throw lt::UsageError("The network in '" + folder + "' has the classes of --classes in another order: " +
                         lt::join(config.classes, ",") + ". Leave the option out.");
  }
  if (std::ssize(classes) == config.options.classes) return classes;
  throw lt::UsageError(lt::text("The network in '", folder, "' has ", config.options.classes,
                                " classes. Give their names, in its order, as --classes."));
}

void train(lt::Context& context) {
  const auto tokenizer = open_tokenizer(context);
  const auto storage = context.storage("data");
  if (context.flag("test-only")) {
    auto tested = read_split(context, storage, "dev", tested_classes(context));
    return train_classifier(context, tokenizer, {}, std::move(tested));
  }
  auto texts = read_split(context, storage, "train", words_of(context, "classes"));
  std::optional<ltd::LabelledTexts> held_out;
  if (!context.option("dev").empty()) held_out.emplace(read_split(context, storage, "dev", texts.classes()));
  if (held_out && held_out->has_pairs() != texts.has_pairs()) {
    throw lt::UsageError(lt::text("--train has ", texts.has_pairs() ? "pairs of texts" : "single texts",
                                  ", but --dev has not. Name the columns of both."));
  }
  if (is_masked_lm(context) && (task_of(context) != RobertaTask::single_label || !context.option("metric").empty())) {
    throw lt::UsageError("--task and --metric are for --objective classification. Leave them out.");
  }
  if (is_masked_lm(context)) {
    train_language_model(context, tokenizer, std::move(texts), std::move(held_out));
  } else {
    train_classifier(context, tokenizer, std::move(texts), std::move(held_out));
  }
}

std::vector<lt::Option> options() {
  return {
      {.name = "data", .help = "Folder or URI with the texts", .value = ".", .may_change = true},
      {"train", "Files of the training texts below --data, with commas between them", "train.tsv"},
      {"dev", "The same for the held-out texts; empty: none", "dev.tsv"},
      {"objective", "classification, or mlm for masked language modelling", "classification"},
      {"task", "single-label, multi-label or regression", "single-label"},
      {"classes", "Names of the classes, with commas between them; empty: those in the training texts", ""},
      {"text-column", "Name or number of the column with the texts; empty: found by its name", ""},
      {"second-column", "The same of the second texts of pairs", ""},
      {"label-column", "The same of the labels", ""},
      {.name = "no-header", .help = "CSV and TSV files have no names of columns", .flag = true},
      {.name = "skip-malformed", .help = "Leave out and count malformed rows", .flag = true},
      {"long-texts", "Texts of more tokens than --max-length: cut, refuse or leave-out", "cut"},
      {"max-length", "Most tokens of a text; 0: the tokenizer's limit or what the network takes", "0"},
      {.name = "weights", .help = "Folder of the network to begin with", .value = ""},
      {.name = "test-only",
       .help = "Evaluate the classifier in --weights on --dev, and train nothing",
       .may_change = true,
       .flag = true},
      {"model", "A new network without --weights: tiny, base or large", ""},
      {.name = "tokenizer", .help = "Folder of the tokenizer; empty: that of --weights", .value = ""},
      {"batch-size", "Texts per rank and step", "32"},
      {"max-tokens", "Tokens per rank and step, in place of --batch-size; 0: any number", "0"},
      {"accumulate", "Batches in a step", "1"},
      // What it comes to is compared, and may not change.
      {.name = "precision",
       .help = "auto (bfloat16 where it is faster), float32, bfloat16 or float16",
       .value = "auto",
       .may_change = true},
      {.name = "recompute-layers",
       .help = "Less memory for more time: compute layers again for gradients",
       .flag = true},
      {.name = "workers", .help = "Threads that read and encode, per rank", .value = "1", .may_change = true},
      {"metric", "What the best network is chosen by; empty: accuracy, f1 or pearson, as the task is", ""},
      {"epochs", "Passes over the training texts", "10"},
      {"max-steps", "Steps after which the training ends; 0: no limit", "0"},
      {"learning-rate", "Largest learning rate", "1e-5"},
      {"warmup", "Share of the steps in which the rate rises", "0.06"},
      {"weight-decay", "Weight decay, but of biases and norms", "0.1"},
      {"adam-beta1", "Decay of the mean of gradients", "0.9"},
      {"adam-beta2", "Decay of the mean of their squares", "0.98"},
      {"adam-epsilon", "Added to the denominator", "1e-6"},
      {"max-gradient-norm", "Gradients are clipped to it; 0: never", "0"},
      {"dropout", "Share of values that are dropped", "0.1"},
  };
}

}  // namespace

int main(int argc, char** argv) {
  return lt::run(argc, argv,
                 {.description = "Teaches a RoBERTa to classify texts.", .options = options(), .recipes = recipes()},
                 train);
}
