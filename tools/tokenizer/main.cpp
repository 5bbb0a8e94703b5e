#include <iostream>
#include <string>

#include <CLI/CLI.hpp>

#include <libtrain/base/error.hpp>

#include <tools/common/tool.hpp>
#include <tools/tokenizer/commands.hpp>

// libtrain-tokenizer: encodes texts, decodes ids, and learns a vocabulary.

namespace libtrain::tokenizer_tool {

namespace {

constexpr const char* kName = "libtrain-tokenizer";
constexpr const char* kTokenizer = "tokenizer.json, or a folder with it or with vocab.json and merges.txt";
constexpr const char* kThreads = "Threads (default: the cores that this process may use)";

struct Arguments {
  EncodeCommand encode = {.threads = tools::default_threads()};
  DecodeCommand decode = {};
  TrainCommand train = {.options = {.threads = tools::default_threads()}};
  std::size_t max_tokens = 0;
  bool no_special_tokens = false;
  bool as_json = false;
};

void add_commands(CLI::App& app, Arguments& arguments) {
  app.require_subcommand(1);
  auto* const encode = app.add_subcommand("encode", "Prints the ids of each line of text.");
  encode->add_option("TOKENIZER", arguments.encode.tokenizer, kTokenizer)->required();
  encode->add_option("FILE", arguments.encode.files, "Texts, one a line (default: standard input)");
  encode->add_option("--max-tokens", arguments.max_tokens, "Cut what is longer, special tokens included")
      ->check(CLI::PositiveNumber);
  encode->add_flag("--no-special-tokens", arguments.no_special_tokens, "Add none around a text");
  encode->add_flag("--offsets", arguments.encode.options.offsets, "Also print the bytes of each token; with --json");
  encode->add_option("--threads", arguments.encode.threads, kThreads)->check(CLI::Range(1, tools::kMaxThreads));

  auto* const decode = app.add_subcommand("decode", "Prints the text of each line of ids.");
  decode->add_option("TOKENIZER", arguments.decode.tokenizer, kTokenizer)->required();
  decode->add_option("FILE", arguments.decode.files,
                     "Ids with spaces between, one text a line (default: standard input)");
  decode->add_flag("--special-tokens", arguments.decode.options.special_tokens, "Also print special tokens");

  auto* const train = app.add_subcommand("train", "Learns a vocabulary from lines of text.");
  auto& options = arguments.train.options;
  train->add_option("OUTPUT", arguments.train.output, "Folder for tokenizer.json, vocab.json and merges.txt")
      ->required();
  train->add_option("FILE", arguments.train.files, "Texts, one a line (default: standard input)");
  train->add_option("--vocabulary-size", options.vocabulary_size, "Tokens, special ones and the 256 bytes included")
      ->capture_default_str();
  train->add_option("--min-frequency", options.min_frequency, "A pair that occurs less often is not merged")
      ->capture_default_str();
  train
      ->add_option("--special-token", options.special_tokens,
                   "May be given several times: the first ids, in this order")
      ->capture_default_str()
      ->allow_extra_args(false);
  train->add_flag("--add-prefix-space", options.add_prefix_space, "Treat the first word of a text like the others");
  train->add_option("--threads", options.threads, kThreads)->check(CLI::Range(1, tools::kMaxThreads));
  train->add_flag("--force", arguments.train.replace, "Replace the files in OUTPUT");

  for (auto* const command : app.get_subcommands({})) {
    command->add_flag("--json", arguments.as_json, "Print a JSON object for each line instead of text");
  }
}

ExitCode run(int argc, char** argv) {
  CLI::App app{"Encodes texts as RoBERTa and GPT-2 do, decodes ids, and learns a vocabulary."};
  Arguments arguments;
  add_commands(app, arguments);
  if (const auto help = tools::read_arguments(app, kName, argc, argv)) {
    std::cout << *help;
    return ExitCode::success;
  }
  const Style style = arguments.as_json ? Style::json : Style::text;
  const std::string command = app.get_subcommands().front()->get_name();
  if (command == "encode") {
    if (arguments.encode.options.offsets && style == Style::text) {
      throw UsageError("--offsets are printed as JSON only. Add --json.");
    }
    if (arguments.max_tokens > 0) arguments.encode.options.max_tokens = arguments.max_tokens;
    arguments.encode.options.special_tokens = !arguments.no_special_tokens;
    arguments.encode.style = style;
    encode(arguments.encode);
  } else if (command == "decode") {
    arguments.decode.style = style;
    decode(arguments.decode);
  } else {
    arguments.train.style = style;
    train(arguments.train);
  }
  return ExitCode::success;
}

}  // namespace

}  // namespace libtrain::tokenizer_tool

int main(int argc, char** argv) {
  namespace tool = libtrain::tokenizer_tool;
  return libtrain::tools::run_tool(tool::kName, [&] { return tool::run(argc, argv); });
}
