#include <libtrain/models/roberta/roberta_config.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/output_file.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::models {

namespace {

using Json = nlohmann::ordered_json;

// No published model comes near: XLM-RoBERTa XXL has 48 layers of width 4,096 and 1.1e10 parameters.
constexpr std::int64_t kMostLayers = 1000;
constexpr std::int64_t kWidest = 1 << 20;
constexpr std::int64_t kMostRows = 1 << 26;  // of a table
constexpr double kMostParameters = 1e11;
constexpr const char* kClassification = "RobertaForSequenceClassification";
constexpr const char* kMaskedLm = "RobertaForMaskedLM";
constexpr std::array kTasks{std::pair{"single_label_classification", RobertaTask::single_label},
                            std::pair{"multi_label_classification", RobertaTask::multi_label},
                            std::pair{"regression", RobertaTask::regression}};

std::string config_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? path + "/config.json" : path;
}

std::string read_config_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string content;
  std::array<char, 4096> part;
  while (file.read(part.data(), part.size()) || file.gcount() > 0) {
    content.append(part.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (file.is_open() && !file.bad()) return content;
  throw EnvironmentError(text("The model's configuration '", path,
                              "' cannot be read: ", std::generic_category().message(errno),
                              ". Give the config.json of a RoBERTa, or its folder."));
}

// For messages. Nothing nested is written: it may be deeper than the stack.
std::string shown_value(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  return value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 100);
}

// The values of a config.json.
class ConfigValues {
 public:
  explicit ConfigValues(std::string path) : path_(std::move(path)) {
    const auto content = read_config_file(path_);
    try {
      values_ = Json::parse(content);
    } catch (const Json::parse_error& error) {
      throw EnvironmentError(
          text("'", path_, "' is not JSON at byte ", error.byte, " of ", content.size(), ". Get the file again."));
    } catch (const Json::out_of_range&) {
      throw EnvironmentError(text("'", path_, "' has a number beyond those of a double. Get the file again."));
    }
    if (!values_.is_object()) {
      throw EnvironmentError(text("'", path_, "' is not a JSON object. Give the config.json of a RoBERTa."));
    }
  }

  [[noreturn]] void refuse(const std::string& key, const Json& value, const std::string& expected) const {
    throw EnvironmentError(text("'", path_, "' has \"", key, "\": ", shown_value(value), ". Expected ", expected, "."));
  }

  // Null, as transformers writes it, is no value.
  const Json* find(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() || found->is_null() ? nullptr : &*found;
  }

  std::int64_t integer(const std::string& key, std::int64_t fallback, std::int64_t least, std::int64_t most) const {
    const Json usual = fallback;
    const auto* given = find(key);
    const Json& value = given == nullptr ? usual : *given;
    const bool fits = value.is_number_integer() && value >= least && value <= most;
    if (!fits) refuse(key, value, text("a whole number from ", least, " to ", most));
    return value.get<std::int64_t>();
  }

  double number(const std::string& key, double fallback, double least, double below) const {
    const auto* value = find(key);
    if (value == nullptr) return fallback;
    const bool fits = value->is_number() && *value >= least && *value < below;
    if (!fits) refuse(key, *value, text("a number from ", least, " to below ", below));
    return value->get<double>();
  }

  // Refuses what this model does not have.
  void require(const std::string& key, const Json& only) const {
    const auto* value = find(key);
    if (value != nullptr && *value != only)
      refuse(key, *value, only.dump() + ", which is all that libtrain's RoBERTa has");
  }

  std::vector<std::string> class_names() const {
    const auto* names = find("id2label");
    if (names == nullptr) return {};
    const auto expected = "an object of the names of the classes under \"0\", \"1\", and so on";
    if (!names->is_object() || names->empty()) refuse("id2label", *names, expected);
    std::vector<std::string> result(names->size());
    std::vector<bool> is_given(names->size());
    for (const auto& [number, name] : names->items()) {
      std::size_t place = 0;
      const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), place);
      const bool is_number = error == std::errc() && end == number.data() + number.size();
      if (!is_number || place >= result.size() || is_given[place] || !name.is_string()) {
        refuse("id2label", *names, expected);
      }
      result[place] = name.get<std::string>();
      is_given[place] = true;
    }
    return result;
  }

 private:
  const std::string path_;
  Json values_;
};

RobertaTask task_of(const ConfigValues& values, std::int64_t classes) {
  const auto* name = values.find("problem_type");
  // As transformers decides when it sees the labels.
  if (name == nullptr) return classes == 1 ? RobertaTask::regression : RobertaTask::single_label;
  const auto task = std::ranges::find_if(kTasks, [&](const auto& each) { return *name == each.first; });
  if (task == kTasks.end()) {
    values.refuse("problem_type", *name, "single_label_classification, multi_label_classification or regression");
  }
  return task->second;
}

// Before anything is as large as they say.
void check_sizes(const ConfigValues& values, const RobertaOptions& options) {
  if (options.hidden % options.heads != 0) {
    values.refuse("hidden_size", options.hidden, text("a multiple of \"num_attention_heads\", ", options.heads));
  }
  const auto width = static_cast<double>(options.hidden);
  const auto rows = static_cast<double>(options.vocabulary + options.positions + options.token_types);
  const auto of_layer = 4 * width + 2 * static_cast<double>(options.feed_forward);
  const double parameters = width * (rows + static_cast<double>(options.layers) * of_layer);
  if (parameters > kMostParameters) {
    values.refuse("hidden_size", options.hidden,
                  text("sizes of at most ", kMostParameters, " parameters, but there are ", parameters,
                       " with this \"vocab_size\", \"num_hidden_layers\" and \"intermediate_size\""));
  }
}

std::vector<std::string> names_or_numbers(const RobertaConfig& config) {
  if (!config.classes.empty()) return config.classes;
  std::vector<std::string> names;
  for (std::int64_t k = 0; k < config.options.classes; ++k) names.push_back(text("LABEL_", k));
  return names;
}

}  // namespace

RobertaConfig read_roberta_config(const std::string& path) {
  const auto file = config_file(path);
  const ConfigValues values{file};
  const auto* type = values.find("model_type");
  if (type == nullptr) {
    throw EnvironmentError(text("'", file, "' has no \"model_type\". Give the config.json of a RoBERTa."));
  }
  if (*type != "roberta") values.refuse("model_type", *type, "\"roberta\"");
  values.require("hidden_act", "gelu");
  values.require("position_embedding_type", "absolute");
  values.require("is_decoder", false);
  values.require("add_cross_attention", false);
  values.require("tie_word_embeddings", true);

  RobertaConfig config;
  auto& options = config.options;
  options.vocabulary = values.integer("vocab_size", 50265, 1, kMostRows);
  options.hidden = values.integer("hidden_size", 768, 1, kWidest);
  options.layers = values.integer("num_hidden_layers", 12, 1, kMostLayers);
  options.heads = values.integer("num_attention_heads", 12, 1, kWidest);
  options.feed_forward = values.integer("intermediate_size", 3072, 1, kWidest);
  options.pad_id = values.integer("pad_token_id", 1, 0, options.vocabulary - 1);
  options.positions = values.integer("max_position_embeddings", 512, options.pad_id + 2, 2 * kMostRows);
  options.token_types = values.integer("type_vocab_size", 2, 1, kMostRows);
  check_sizes(values, options);
  options.dropout = values.number("hidden_dropout_prob", 0.1, 0, 1);
  options.attention_dropout = values.number("attention_probs_dropout_prob", 0.1, 0, 1);
  if (values.find("classifier_dropout") != nullptr) {
    options.classifier_dropout = values.number("classifier_dropout", 0, 0, 1);
  }
  options.norm_epsilon = values.number("layer_norm_eps", 1e-12, 1e-300, 1);
  options.initial_deviation = values.number("initializer_range", 0.02, 0, 1000);
  config.begin_id = values.integer("bos_token_id", 0, 0, kMostRows);
  config.end_id = values.integer("eos_token_id", 2, 0, kMostRows);
  config.classes = values.class_names();
  options.classes = config.classes.empty() ? values.integer("num_labels", 2, 1, kWidest)
                                           : static_cast<std::int64_t>(config.classes.size());
  options.task = task_of(values, options.classes);
  const auto* architectures = values.find("architectures");
  config.masked_lm = architectures != nullptr && *architectures == Json::array({kMaskedLm});
  if (config.classes == names_or_numbers({.options = options})) config.classes.clear();
  return config;
}

void write_roberta_config(const RobertaConfig& config, const std::string& path) {
  const auto& options = config.options;
  const auto names = names_or_numbers(config);
  if (std::ssize(names) != options.classes) {
    throw UsageError(text("RobertaConfig has ", names.size(), " names for ", options.classes,
                          " classes. Give one for each class, or none."));
  }
  Json id_to_label = Json::object(), label_to_id = Json::object();
  for (std::size_t k = 0; k < names.size(); ++k) {
    id_to_label[std::to_string(k)] = names[k];
    label_to_id[names[k]] = k;
  }
  const auto task = std::ranges::find(kTasks, options.task, [](const auto& each) { return each.second; });
  Json json{{"architectures", Json::array({config.masked_lm ? kMaskedLm : kClassification})},
            {"model_type", "roberta"},
            {"vocab_size", options.vocabulary},
            {"hidden_size", options.hidden},
            {"num_hidden_layers", options.layers},
            {"num_attention_heads", options.heads},
            {"intermediate_size", options.feed_forward},
            {"hidden_act", "gelu"},
            {"max_position_embeddings", options.positions},
            {"type_vocab_size", options.token_types},
            {"pad_token_id", options.pad_id},
            {"bos_token_id", config.begin_id},
            {"eos_token_id", config.end_id},
            {"hidden_dropout_prob", options.dropout},
            {"attention_probs_dropout_prob", options.attention_dropout},
            {"classifier_dropout", nullptr},
            {"layer_norm_eps", options.norm_epsilon},
            {"initializer_range", options.initial_deviation},
            {"tie_word_embeddings", true},
            {"dtype", "float32"}};
  if (options.classifier_dropout) json["classifier_dropout"] = *options.classifier_dropout;
  if (!config.masked_lm) {
    json["id2label"] = std::move(id_to_label);
    json["label2id"] = std::move(label_to_id);
    json["problem_type"] = task->first;
  }
  std::string content;
  try {
    content = json.dump(2) + "\n";
  } catch (const Json::type_error&) {
    throw UsageError("A class's name is not UTF-8. Rename the class before it is written to a config.json.");
  }
  libtrain::detail::OutputFile file(config_file(path));
  file.write(content);
  file.commit();
}

}  // namespace libtrain::models
