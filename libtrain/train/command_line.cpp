#include <libtrain/train/command_line.hpp>

#include <memory>
#include <vector>

#include <CLI/CLI.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

// One week: longer waits are typing errors, and sums of time points stay far from overflow.
constexpr double kLongestTimeout_s = 604800;

void add_common_options(CLI::App& app, CommandLine& line) {
  app.add_option("--output", line.output, "Folder for metrics.jsonl and whatever else the run writes")
      ->capture_default_str();
  app.add_option("--timeline", line.timeline,
                 "File for what all ranks did and when, to look at in https://ui.perfetto.dev");
  app.add_option("--device", line.device, "auto or cpu")->capture_default_str()->check(CLI::IsMember({"auto", "cpu"}));
  app.add_option("--timeout", line.timeout_s, "Seconds after which a collective that has not ended ends the run")
      ->capture_default_str()
      ->check(CLI::Range(0.1, kLongestTimeout_s));
  app.add_option("--threads", line.threads, "Threads inside one operation (default: this rank's share of the cores)")
      ->check(CLI::Range(1, 4096));
  app.add_option("--seed", line.seed, "Seed of weights, data order and augmentation")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--stage", line.data.stage, "Folder on this node's disk to copy the data to before training");
  app.add_option("--cache", line.data.cache, "Folder on this node's disk to keep in what the first epoch reads");
  app.add_option("--cache-limit", line.data.cache_limit_bytes, "Size of that cache, such as 200G (default: the disk)")
      ->transform(CLI::AsSizeValue(false));
  app.add_flag("--quiet", line.quiet, "No progress");
  app.add_option("--rank", line.launch.rank, "This process's rank, where the launcher does not say");
  app.add_option("--world-size", line.launch.world_size, "Number of processes, where the launcher does not say");
  app.add_option("--local-rank", line.launch.local_rank, "This process's rank on its host, likewise");
  app.add_option("--dist-url", line.launch.dist_url, "Where ranks meet: tcp://host:port, file:///path or env://");
  app.add_option("--dist-backend", line.launch.dist_backend, "auto, gloo or mpi");
}

// `--name VALUE` and `--name=VALUE` as they stand.
std::map<std::string, std::string> read_undeclared(const std::vector<std::string>& words) {
  std::map<std::string, std::string> options;
  for (std::size_t index = 0; index < words.size(); ++index) {
    const auto& word = words[index];
    if (!word.starts_with("--") || word.size() < 3) {
      throw UsageError(text("Cannot make sense of '", word, "' on the command line: options look like --name VALUE."));
    }
    const auto equals = word.find('=');
    if (equals != std::string::npos) {
      options[word.substr(2, equals - 2)] = word.substr(equals + 1);
    } else if (index + 1 < words.size()) {
      options[word.substr(2)] = words[++index];
    } else {
      throw UsageError(text("Option ", word, " needs a value."));
    }
  }
  return options;
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv, const Program& program) {
  CommandLine line;
  line.declared = !program.options.empty();
  CLI::App app{program.description};
  app.allow_extras(!line.declared);
  for (const auto& option : program.options) {
    auto& value = line.options[option.name];
    value = option.value.value_or("");
    auto* added = app.add_option("--" + option.name, value, option.help);
    if (option.value) added->capture_default_str();
  }
  add_common_options(app, line);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    line.help = app.help();
    return line;
  } catch (const CLI::ParseError& error) {
    throw UsageError(text(error.what(), " (", argc > 0 ? argv[0] : "the program", " --help lists the options)."));
  }
  for (const auto& option : program.options) {
    if (!option.value && app.count("--" + option.name) == 0) line.options.erase(option.name);
  }
  if (!line.declared) line.options = read_undeclared(app.remaining());
  return line;
}

}  // namespace libtrain::detail
