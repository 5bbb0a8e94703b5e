#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

#include <tools/checkpoint/compare.hpp>
#include <tools/checkpoint/export_onnx.hpp>
#include <tools/checkpoint/files.hpp>
#include <tools/checkpoint/folders.hpp>
#include <tools/checkpoint/report.hpp>
#include <tools/checkpoint/write_weights.hpp>
#include <tools/common/tool.hpp>

// libtrain-checkpoint: lists, verifies, compares, averages, converts and exports checkpoints and files of weights.

namespace libtrain::checkpoint_tool {

namespace {

constexpr const char* kName = "libtrain-checkpoint";
constexpr const char* kInput =
    "A safetensors or .pth file, a checkpoint, step-..., or a folder with config.json and model.safetensors";
constexpr const char* kPart = "Part of a checkpoint to read, NAME.safetensors";

struct Arguments {
  bool as_json = false;
  std::string folder = {};
  std::vector<std::string> paths = {};
  std::string first = {};
  std::string second = {};
  std::optional<std::string> compared_part = {};
  InputOptions input = {};
  std::vector<std::string> rename = {};
  OutputOptions output = {};
  bool force = false;
  std::string type = {};
};

void add_part(CLI::App& command, Arguments& arguments) {
  command.add_option("--part", arguments.input.part, kPart)->default_str(kModelPart);
}

void add_force(CLI::App& command, Arguments& arguments) {
  command.add_flag("--force", arguments.force, "Replace OUT if it exists, when the new file is complete");
}

void add_names(CLI::App& command, Arguments& arguments) {
  command.add_option("--prefix", arguments.input.prefix,
                     "Take only tensors whose names begin with it, and remove it: model.");
  command
      .add_option("--rename", arguments.rename,
                  "Then replace the beginning FROM of a name by TO: module.= removes it. May be given several times; "
                  "the first that fits counts")
      ->type_name("FROM=TO")
      ->allow_extra_args(false);
}

void add_commands(CLI::App& app, Arguments& arguments) {
  app.require_subcommand(1);
  auto* const list = app.add_subcommand("list", "Prints the checkpoints of a run, damaged ones with the reason.");
  list->add_option("DIR", arguments.folder, "A run's --output, its folder checkpoints, or one checkpoint")->required();

  auto* const verify = app.add_subcommand(
      "verify", "Reads everything and compares checksums. The exit code is 3 if anything is damaged.");
  verify->add_option("PATH", arguments.paths, "As for list, and files of weights")->required();

  auto* const compare = app.add_subcommand(
      "compare", "Compares the tensors of two checkpoints or files. The exit code is 1 if they differ.");
  compare->add_option("A", arguments.first, kInput)->required();
  compare->add_option("B", arguments.second, kInput)->required();
  compare->add_option("--part", arguments.compared_part, text(kPart, " (default: all, and model beside a file)"));

  auto* const average = app.add_subcommand(
      "average",
      "Writes the mean of the weights of several checkpoints or files. Tensors of whole numbers are the last "
      "one's.");
  average->add_option("OUT", arguments.output.path, "The safetensors file to write")->required();
  average->add_option("INPUT", arguments.paths, kInput)->required()->expected(2, -1);
  add_part(*average, arguments);
  add_force(*average, arguments);

  auto* const convert = app.add_subcommand(
      "convert", "Writes the tensors of a file, or of a part of a checkpoint, as a safetensors file.");
  convert->add_option("IN", arguments.input.path, kInput)->required();
  convert->add_option("OUT", arguments.output.path, "The safetensors file to write")->required();
  add_names(*convert, arguments);
  convert->add_option("--dtype", arguments.type, "Convert floating-point tensors to float32, float16 or bfloat16")
      ->check(CLI::IsMember({"float32", "float16", "bfloat16"}));
  add_part(*convert, arguments);
  add_force(*convert, arguments);

  auto* const export_onnx = app.add_subcommand(
      "export-onnx",
      "Writes a ResNet or a RoBERTa classifier as an ONNX model. The network follows from the names and shapes of the "
      "weights, and of a RoBERTa from the config.json beside them.");
  export_onnx->add_option("IN", arguments.input.path, kInput)->required();
  export_onnx->add_option("OUT", arguments.output.path, "The ONNX file to write")->required();
  add_names(*export_onnx, arguments);
  add_part(*export_onnx, arguments);
  add_force(*export_onnx, arguments);

  for (auto* const command : app.get_subcommands({})) {
    command->add_flag("--json", arguments.as_json, "Print one JSON object on one line instead of text");
  }
}

std::vector<NameChange> read_changes(const std::vector<std::string>& rename) {
  std::vector<NameChange> changes;
  for (const auto& change : rename) {
    const auto equals = change.find('=');
    if (equals == std::string::npos) {
      throw UsageError(text("--rename is '", change, "', and must be FROM=TO, such as module.= or =backbone."));
    }
    changes.push_back({.from = change.substr(0, equals), .to = change.substr(equals + 1)});
  }
  return changes;
}

std::optional<ElementType> read_type(const std::string& name) {
  if (name == "float32") return ElementType::float32;
  if (name == "float16") return ElementType::float16;
  if (name == "bfloat16") return ElementType::bfloat16;
  return std::nullopt;
}

ExitCode execute(const std::string& command, Arguments& arguments, Report& report) {
  arguments.output.existing = arguments.force ? Existing::replace : Existing::refuse;
  arguments.input.rename = read_changes(arguments.rename);
  if (command == "verify") return verify(arguments.paths, report);
  if (command == "compare") return compare(arguments.first, arguments.second, arguments.compared_part, report);
  if (command == "list") {
    list(arguments.folder, report);
  } else if (command == "average") {
    average(arguments.output, arguments.paths, arguments.input.part, report);
  } else if (command == "convert") {
    convert({.input = arguments.input, .type = read_type(arguments.type), .output = arguments.output}, report);
  } else {
    export_onnx(arguments.input, arguments.output, report);
  }
  return ExitCode::success;
}

ExitCode run(int argc, char** argv) {
  CLI::App app{"Lists, verifies, compares, averages, converts and exports checkpoints and files of weights."};
  Arguments arguments;
  add_commands(app, arguments);
  if (const auto help = tools::read_arguments(app, kName, argc, argv)) {
    std::cout << *help;
    return ExitCode::success;
  }
  Report report{arguments.as_json ? Style::json : Style::text};
  const auto code = execute(app.get_subcommands().front()->get_name(), arguments, report);
  report.finish();
  return code;
}

}  // namespace

}  // namespace libtrain::checkpoint_tool

int main(int argc, char** argv) {
  namespace tool = libtrain::checkpoint_tool;
  return libtrain::tools::run_tool(tool::kName, [&] { return tool::run(argc, argv); });
}
