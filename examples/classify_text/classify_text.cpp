// Classifies texts with a trained RoBERTa, in one process on the CPU:
//
//   classify_text --weights examples/classify_text/reviews/model "The food was not bad at all."
//   classify_text --json --weights outputs/model < texts.txt
//
// The folder is one that train_text_classification has written, or a classifier of Hugging Face's: config.json,
// model.safetensors or pytorch_model.bin, and tokenizer.json or vocab.json with merges.txt.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iomanip>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include <torch/types.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <libtrain/libtrain.hpp>
#include <libtrain/models/roberta/roberta.hpp>

#include "../roberta_folder.hpp"
#include "../without_ranks.hpp"

namespace lt = libtrain;
namespace models = libtrain::models;

namespace {

constexpr std::size_t kBatchSize = 32;

struct Options {
  std::string weights = {};
  std::string tokenizer = {};
  bool pairs = false;
  bool as_json = false;
  std::vector<std::string> texts = {};
};

const std::string& tokenizer_folder(const Options& options) {
  return options.tokenizer.empty() ? options.weights : options.tokenizer;
}

class Classifier {
 public:
  explicit Classifier(const Options& options)
      : options_(options),
        config_(read_roberta_folder(options.weights)),
        tokenizer_(lt::read_tokenizer(tokenizer_folder(options))) {
    if (config_.masked_lm) {
      throw lt::UsageError("'" + options.weights +
                           "' has a language model, not a classifier. Train one with train_text_classification "
                           "--weights " +
                           options.weights + ".");
    }
    require_tokenizer_of(options.weights, config_, tokenizer_, tokenizer_folder(options));
    load_roberta(*model_, config_, options.weights, RobertaHead::loaded);
    model_->eval();
    for (std::int64_t number = 0; number < config_.options.classes; ++number) {
      const auto index = static_cast<std::size_t>(number);
      names_.push_back(config_.classes.empty() ? "LABEL_" + std::to_string(number) : config_.classes[index]);
      width_ = std::max(width_, names_.back().size());
    }
  }

  void add(std::string text) {
    waiting_.push_back(std::move(text));
    if (waiting_.size() == kBatchSize) run();
  }

  // Classifies what waits.
  void run() {
    if (waiting_.empty()) return;
    std::vector<std::int64_t> ids;
    models::PackedTexts texts;
    std::vector<bool> truncated;
    for (const auto& text : waiting_) {
      const auto encoding = encode(text);
      ids.insert(ids.end(), encoding.ids.begin(), encoding.ids.end());
      texts.lengths.push_back(std::ssize(encoding.ids));
      truncated.push_back(encoding.truncated);
    }
    texts.ids = torch::tensor(ids);
    const torch::NoGradGuard no_gradients;
    const auto logits = model_->forward(texts);
    for (std::size_t index = 0; index < waiting_.size(); ++index) {
      print(waiting_[index], logits[static_cast<std::int64_t>(index)], truncated[index]);
      truncated_ += truncated[index] ? 1 : 0;
    }
    waiting_.clear();
  }

  std::size_t printed() const { return printed_; }

  void end_output() {
    if (options_.as_json) std::cout << (printed_ == 0 ? "[]\n" : "]\n");
    if (!std::cout.flush()) throw lt::EnvironmentError("Cannot write the results. Check the space on the disk.");
    if (truncated_ > 0) {
      std::cerr << "classify_text: " << truncated_ << " of " << printed_ << " texts have more than " << max_tokens()
                << " tokens. Their ends were left out.\n";
    }
  }

 private:
  // As many as in the training, which writes them for the tokenizer.
  std::size_t max_tokens() const {
    const auto taken = static_cast<std::size_t>(config_.options.max_tokens());
    return std::min(taken, tokenizer_.max_tokens().value_or(taken));
  }

  lt::Encoding encode(const std::string& text) const {
    const lt::EncodeOptions options{.max_tokens = max_tokens()};
    if (!options_.pairs) return tokenizer_.encode(text, options);
    const auto tab = text.find('\t');
    if (tab == std::string::npos) {
      throw lt::UsageError("With --pairs each text is two with a tab between them, but '" + text + "' has no tab.");
    }
    return tokenizer_.encode_pair(std::string_view(text).substr(0, tab), std::string_view(text).substr(tab + 1),
                                  options);
  }

  void print(const std::string& text, const torch::Tensor& logits, bool truncated) {
    const auto values = [](const torch::Tensor& tensor) {
      const auto numbers = tensor.contiguous();
      return std::vector<float>(numbers.const_data_ptr<float>(), numbers.const_data_ptr<float>() + numbers.numel());
    };
    nlohmann::ordered_json object{{"text", text}};
    std::vector<std::pair<std::string, float>> found;  // what the table shows: names with probabilities or numbers
    switch (config_.options.task) {
      case models::RobertaTask::single_label: {
        const auto [probability, label] = logits.softmax(0).max(0);
        found.emplace_back(names_[static_cast<std::size_t>(label.item<std::int64_t>())], probability.item<float>());
        object["label"] = found.front().first;
        object["probability"] = found.front().second;
        break;
      }
      case models::RobertaTask::multi_label: {
        const auto probabilities = values(logits.sigmoid());
        auto labels = nlohmann::ordered_json::array();
        for (std::size_t number = 0; number < names_.size(); ++number) {
          if (probabilities[number] < 0.5F) continue;
          found.emplace_back(names_[number], probabilities[number]);
          labels.push_back(names_[number]);
        }
        object["labels"] = labels;
        object["probabilities"] = probabilities;
        break;
      }
      case models::RobertaTask::regression: {
        const auto numbers = values(logits);
        for (std::size_t number = 0; number < names_.size(); ++number) {
          found.emplace_back(names_.size() == 1 ? "" : names_[number], numbers[number]);
        }
        break;
      }
    }
    object["logits"] = values(logits);
    if (truncated) object["truncated"] = true;
    if (options_.as_json) {
      std::cout << (printed_ == 0 ? "[" : ",\n ")
                << object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    } else {
      print_row(text, found);
    }
    ++printed_;
  }

  void print_row(const std::string& text, const std::vector<std::pair<std::string, float>>& found) const {
    if (found.empty()) std::cout << std::left << std::setw(static_cast<int>(width_) + 8) << "no label";
    for (const auto& [name, value] : found) {
      if (&name != &found.front().first) std::cout << "  ";
      if (!name.empty()) std::cout << std::left << std::setw(static_cast<int>(width_)) << name << "  ";
      std::cout << std::fixed << std::setprecision(4) << value;
    }
    std::cout << "  " << text << '\n';
  }

  const Options& options_;
  const models::RobertaConfig config_;
  const lt::Tokenizer tokenizer_;
  models::RobertaForClassification model_{config_.options};
  std::vector<std::string> names_;
  std::size_t width_ = 0;  // of the longest name
  std::vector<std::string> waiting_;
  std::size_t printed_ = 0;
  std::size_t truncated_ = 0;
};

// In front of a text in brackets, which CLI11 would take for a list.
constexpr char kKeepsBrackets = '\x1f';

void classify(const Options& options) {
  Classifier classifier(options);
  try {
    for (const auto& text : options.texts) classifier.add(text.substr(text.starts_with(kKeepsBrackets)));
    if (options.texts.empty()) {
      for (std::string line; std::getline(std::cin, line);) {
        if (line.ends_with('\r')) line.pop_back();
        if (!line.empty()) classifier.add(std::move(line));
      }
      // std::cin reads with stdio's functions, and takes their errors for the end.
      if (std::ferror(stdin) != 0) throw lt::EnvironmentError("Cannot read the standard input to its end.");
    }
    classifier.run();
  } catch (...) {
    if (classifier.printed() > 0) classifier.end_output();
    throw;
  }
  classifier.end_output();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Classifies texts with a trained RoBERTa."};
  Options options;
  app.add_option("--weights", options.weights, "Folder with config.json, weights and tokenizer")->required();
  app.add_option("--tokenizer", options.tokenizer, "Folder of the tokenizer (default: that of the weights)");
  app.add_flag("--pairs", options.pairs, "Each text is a pair, with a tab between its texts");
  app.add_flag("--json", options.as_json, "Print a list of objects with text, label, probability and logits");
  app.add_option("TEXTS", options.texts, "Texts; without them, the lines of the standard input");
  std::vector<std::string> words(argv, argv + argc);
  std::vector<const char*> arguments;
  for (auto& word : words) {
    if (word.starts_with('[')) word.insert(0, 1, kKeepsBrackets);
    arguments.push_back(word.c_str());
  }
  return run_without_ranks(app, argc, arguments.data(), "classify_text", [&] {
    for (auto* const path : {&options.weights, &options.tokenizer}) path->erase(0, path->starts_with(kKeepsBrackets));
    classify(options);
  });
}
