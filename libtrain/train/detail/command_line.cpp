#include <libtrain/train/detail/command_line.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iomanip>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <CLI/CLI.hpp>

#include <libtrain/base/detail/option_words.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/backend.hpp>
#include <libtrain/train/detail/config_file.hpp>

namespace libtrain::detail {

namespace {

// One week: longer timeouts are typing errors, and sums of time points cannot overflow.
constexpr double kLongestTimeout_s = 604800;

constexpr double kLongestRun_minutes = 60 * 24 * 365;

const std::map<std::string, DeviceChoice> kDevices{
    {"auto", DeviceChoice::automatic}, {"cpu", DeviceChoice::cpu}, {"cuda", DeviceChoice::cuda}};

// CLI11 alone reads 010 as 8, and accepts nan in any range: it gets the number that parse_decimal has read.
template <typename Number>
CLI::Validator decimal(Number minimum, Number maximum, const std::string& what) {
  return {[=](std::string& word) {
            const auto number = parse_decimal<Number>(word, minimum, maximum);
            if (!number) return text("'", word, "' is not ", what);
            word = text(std::setprecision(std::numeric_limits<double>::max_digits10), *number);
            return std::string{};
          },
          {}};
}

template <typename Number>
CLI::Validator whole_number(Number minimum, Number maximum) {
  return decimal(minimum, maximum, text("a whole number from ", minimum, " to ", maximum));
}

// `--name`, `--name true` and `--name=false`. CLI11 alone would read the second as a flag and a word without a meaning,
// and would take many words, such as "on", for true.
CLI::Option* add_flag(CLI::App& app, const Option& option, std::string& value) {
  return app.add_flag("--" + option.name, value, option.help)->expected(0, 1)->check([](const std::string& word) {
    return word == "true" || word == "false" ? std::string{} : text("'", word, "' is not true or false");
  });
}

void add_common_options(CLI::App& app, CommandLine& line) {
  app.add_option("--output,--output-dir", line.run.output, "Folder for metrics.jsonl and the other files of the run")
      ->capture_default_str()
      ->check([](const std::string& folder) { return folder.empty() ? "the name of the folder is empty" : ""; });
  app.add_option("--timeline", line.timeline, "File for a timeline of all ranks; open it in https://ui.perfetto.dev");
  app.add_option_function<std::string>(
         "--device", [&line](const std::string& name) { line.device = kDevices.at(name); },
         "Where to train: auto (on GPUs if every rank has one), cpu or cuda")
      ->default_str("auto")
      ->check(CLI::IsMember(kDevices));
  app.add_option("--timeout", line.timeout_s, "Timeout of a collective in seconds; when it expires, the run fails")
      ->capture_default_str()
      ->transform(decimal(0.1, kLongestTimeout_s, number_between(0.1, kLongestTimeout_s)));
  app.add_option("--connect-timeout", line.connect_timeout_s,
                 "Timeout for connecting all ranks, in seconds (default: --timeout)")
      ->transform(decimal(0.1, kLongestTimeout_s, number_between(0.1, kLongestTimeout_s)));
  app.add_option("--threads", line.threads, "Threads inside one operation (default: this rank's share of the cores)")
      ->transform(whole_number(1, 4096));
  app.add_option("--seed", line.run.seed, "Seed of weights, data order and augmentation")
      ->capture_default_str()
      ->transform(whole_number<std::uint64_t>(0, std::numeric_limits<std::uint64_t>::max()));
  app.add_option("--stage", line.run.data.stage, "Folder on this node's disk to copy the data to before training");
  app.add_option("--cache", line.run.data.cache,
                 "Folder on this node's disk in which to cache the files that the run reads");
  app.add_option("--cache-limit", line.run.data.cache_limit_bytes,
                 "Size of that cache, such as 200G (default: limited by the disk)")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--config", line.config,
                 "JSON file of options, such as {\"epochs\": 3, \"seed\": 7}; the command line wins");
  app.add_option("--resume", line.run.resume,
                 "auto: continue the run in --output, if there is one; none: start anew; or a checkpoint's folder")
      ->capture_default_str()
      ->check([](const std::string& folder) { return folder.empty() ? "the name of the folder is empty" : ""; });
  app.add_option(
      "--checkpoint-store", line.run.checkpoint_store,
      "Location in Azure Blob, S3 or Google Cloud Storage to which checkpoints are copied, and from which the "
      "run continues on another machine");
  app.add_option_function<double>(
         "--max-minutes",
         [&line](double minutes) {
           line.run.stop_at = Deadline::after(std::chrono::milliseconds(static_cast<std::int64_t>(minutes * 60'000)));
         },
         "Minutes after which the run writes a checkpoint and stops with exit code 5 (default: no limit)")
      ->transform(decimal(0.0, kLongestRun_minutes, number_between(0.0, kLongestRun_minutes)));
  app.add_flag("--quiet", line.run.quiet, "No progress");
  const auto rank = whole_number(0, std::numeric_limits<int>::max());
  app.add_option("--rank", line.launch.rank, "This process's rank, if the launcher does not set it")->transform(rank);
  app.add_option("--world-size", line.launch.world_size, "Number of processes, if the launcher does not set it")
      ->transform(whole_number(1, std::numeric_limits<int>::max()));
  app.add_option("--local-rank", line.launch.local_rank,
                 "This process's rank on its host, if the launcher does not set it")
      ->transform(rank);
  app.add_option("--dist-url", line.launch.dist_url, "Rendezvous address: tcp://host:port, file:///path or env://");
  app.add_option("--dist-backend", line.launch.dist_backend, "Communication backend: " + join(backend_names(), ", "));
}

// Reads `--name VALUE` and `--name=VALUE`.
std::map<std::string, std::string> read_undeclared(const std::vector<std::string>& words) {
  std::map<std::string, std::string> options;
  for (std::size_t index = 0; index < words.size(); ++index) {
    const auto& word = words[index];
    if (!word.starts_with("--") || word.size() < 3) {
      throw UsageError(text("Cannot read '", word, "' on the command line. Write options as --name VALUE."));
    }
    const auto equals = word.find('=');
    if (equals != std::string::npos) {
      options[word.substr(2, equals - 2)] = word.substr(equals + 1);
    } else if (index + 1 < words.size()) {
      options[word.substr(2)] = words[++index];
    } else {
      throw UsageError(text("Option ", word, " needs a value. Write it as ", word, " VALUE."));
    }
  }
  return options;
}

// All ranks read the same file, so it cannot have what differs between ranks.
const std::map<std::string, std::string> kNotInFiles{
    {"rank", "which differs between ranks that share the file; give it on the command line"},
    {"local-rank", "which differs between ranks that share the file; give it on the command line"},
    {"config", "but a configuration file cannot name another; remove it"},
    {"help", "which is for the command line; remove it"}};

void check_name_in_file(const std::string& file, const std::string& name) {
  const auto refused = kNotInFiles.find(name);
  if (refused != kNotInFiles.end()) {
    throw UsageError(text("Configuration file '", file, "' has '", name, "', ", refused->second, "."));
  }
  if (name.empty() || name.starts_with('-')) {
    throw UsageError(text("Configuration file '", file, "' has the name '", name,
                          "'. Write the names of options without their dashes, such as \"epochs\"."));
  }
}

// The text that CLI11 would read from the command line.
std::string word_for(const CLI::Option& option, const ConfigValue& value, const std::string& place) {
  const bool is_flag = option.get_items_expected_min() == 0;
  const auto* is_set = std::get_if<bool>(&value);
  if (is_flag && !is_set) throw UsageError(text(place, " has a value, but is a flag. Write true or false."));
  if (!is_flag && is_set) {
    throw UsageError(
        text(place, " is ", *is_set ? "true" : "false", ", but takes a value. Write a number or a string."));
  }
  return is_flag ? (*is_set ? "true" : "false") : std::get<std::string>(value);
}

// Adds the values of the file to `app`, which has parsed the command line. Returns the values for options that `app`
// does not have, for programs that declare none.
std::map<std::string, std::string> add_config_file(CLI::App& app, const std::string& file, bool declared) {
  std::map<std::string, std::string> undeclared;
  for (const auto& [name, value] : read_config_file(file)) {
    check_name_in_file(file, name);
    const auto place = text("'", name, "' in configuration file '", file, "'");
    auto* option = app.get_option_no_throw("--" + name);
    if (option == nullptr && declared) throw UsageError(text(place, " is not an option. --help lists the options."));
    if (option == nullptr) {
      const auto* word = std::get_if<std::string>(&value);
      if (!word) throw UsageError(text(place, " is true or false. Write a number or a string."));
      undeclared.emplace(name, *word);
    } else if (const auto word = word_for(*option, value, place); option->count() == 0) {
      try {
        option->add_result(word);
        option->run_callback();
      } catch (const CLI::ParseError& error) {
        throw UsageError(text("Configuration file '", file, "': ", error.what(), "."));
      }
    }
  }
  return undeclared;
}

void add_recipes(CLI::App& app, const std::vector<Recipe>& recipes, std::string& selected) {
  std::vector<std::string> names;
  std::string descriptions = "Recipes (options that are given replace their values):";
  for (const auto& recipe : recipes) {
    names.push_back(recipe.name);
    descriptions += text("\n  ", recipe.name, ": ", recipe.help, "\n   ");
    for (const auto& [name, value] : recipe.values)
      descriptions += text(" --", name, " ", value.empty() ? "''" : value);
  }
  selected = names.front();
  app.add_option("--recipe", selected, "Values of several options, for those that are not given")
      ->capture_default_str()
      ->check(CLI::IsMember(names));
  app.footer(descriptions);
}

// Gives the options that are on no command line and in no configuration file the selected recipe's values.
void follow_recipe(const CLI::App& app, const Program& program, std::map<std::string, std::string>& options) {
  const auto recipe = std::ranges::find(program.recipes, options.at("recipe"), &Recipe::name);
  for (const auto& [name, value] : recipe->values) {
    if (std::ranges::find(program.options, name, &Option::name) == program.options.end()) {
      throw UsageError(text("Recipe '", recipe->name, "' sets '", name,
                            "', which is no option of the program. Add the ", "option, or correct the name."));
    }
    if (app.count("--" + name) == 0) options[name] = value;
  }
}

// What was given of the options of every program, for the record of the run.
std::map<std::string, std::string> given_common_options(const CLI::App& app, const Program& program) {
  std::map<std::string, std::string> given;
  for (const auto* option : app.get_options()) {
    if (option->count() > 0) given.emplace(option->get_single_name(), join(option->results(), " "));
  }
  for (const auto& option : program.options) given.erase(option.name);
  if (!program.recipes.empty()) given.erase("recipe");
  return given;
}

}  // namespace

std::string number_between(double minimum, double maximum) {
  using Limits = std::numeric_limits<double>;
  if (minimum == Limits::lowest() && maximum == Limits::max()) return "a finite number";
  if (maximum == Limits::max()) return text("a finite number of ", minimum, " or more");
  return text("a number from ", minimum, " to ", maximum);
}

CommandLine parse_command_line(int argc, const char* const* argv, const Program& program) {
  CommandLine line;
  line.run.declared = !program.options.empty();
  CLI::App app{program.description};
  app.allow_extras(!line.run.declared);
  for (const auto& option : program.options) {
    auto& value = line.run.options[option.name];
    value = option.value.value_or(option.flag ? "false" : "");
    auto* added = option.flag ? add_flag(app, option, value) : app.add_option("--" + option.name, value, option.help);
    if (option.value) added->capture_default_str();
    if (option.may_change) line.run.may_change.insert(option.name);
  }
  if (!program.recipes.empty()) add_recipes(app, program.recipes, line.run.options["recipe"]);
  add_common_options(app, line);
  require_option_values({argv, static_cast<std::size_t>(argc)}, [&](const std::string& name) {
    const auto* const option = app.get_option_no_throw(name);
    return option != nullptr ? option->get_items_expected_min() > 0 : !line.run.declared;
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    line.help = app.help();
    return line;
  } catch (const CLI::ParseError& error) {
    throw UsageError(text(error.what(), " (", argc > 0 ? argv[0] : "the program", " --help lists the options)."));
  }
  if (!line.run.declared) line.run.options = read_undeclared(app.remaining());
  if (app.count("--config") > 0) {
    line.run.options.merge(add_config_file(app, line.config, line.run.declared));
  }
  for (const auto& option : program.options) {
    if (!option.value && !option.flag && app.count("--" + option.name) == 0) line.run.options.erase(option.name);
  }
  if (!program.recipes.empty()) follow_recipe(app, program, line.run.options);
  line.run.common = given_common_options(app, program);
  return line;
}

}  // namespace libtrain::detail
