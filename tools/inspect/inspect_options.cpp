#include <tools/inspect/inspect_options.hpp>

#include <limits>

#include <CLI/CLI.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/detail/location.hpp>

#include <tools/common/command_line.hpp>
#include <tools/common/threads.hpp>

namespace libtrain::inspect {

namespace {

constexpr const char* kDescription =
    "Says what a data set holds, finds samples that are damaged, and shows what a loader makes of them. Exit code 3\n"
    "where a sample is damaged or cannot be read, or a class has no images; duplicates, missing labels and small "
    "images\n"
    "are told, and are no error.";

constexpr std::uint64_t kMaxSamples = 1'000'000;
constexpr int kLargestSide = 4096;

// Options as they are written.
struct Words {
  std::string format = "auto";
  std::string check = "headers";
  std::string augment = "training";
  std::optional<std::string> sheet = {};
};

void add_data_options(CLI::App& app, InspectOptions& options, Words& words) {
  app.add_option("DATA", options.data,
                 "A folder of images, one folder a class; a folder of tar, TFRecord or Parquet files; a COCO instances "
                 "file; a CSV, TSV, JSON-lines or IDX file. A local path, or a URI such as az://container/train")
      ->required();
  app.add_option("--format", words.format,
                 "images, coco, csv, tsv, json-lines or idx; auto: by the end of the name, .json being COCO")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "images", "coco", "csv", "tsv", "json-lines", "idx"}));
  app.add_option("--prefix", options.prefix, "Leave out shards whose names begin otherwise, such as another split's");
}

void add_check_options(CLI::App& app, InspectOptions& options, Words& words) {
  app.add_option("--check", words.check,
                 "headers: every image's bytes and header, every row's fields; decode: every image's pixels as well; "
                 "none: only what listing and opening tell")
      ->capture_default_str()
      ->check(CLI::IsMember({"none", "headers", "decode"}));
  app.add_option("--threads", options.threads, "Threads that check images")
      ->capture_default_str()
      ->check(CLI::Range(1, tools::kMaxThreads));
  app.add_flag("--json", options.as_json, "Print one JSON object on one line instead of text");
  app.add_flag("--quiet", options.quiet, "No progress, which is shown on terminals only");
}

void add_sheet_options(CLI::App& app, ContactSheetOptions& sheet, Words& words) {
  auto* const path = app.add_option("--contact-sheet", words.sheet,
                                    "A PNG to write: a row for each sample, of the plain picture and five draws of "
                                    "it, those of the epochs 0 to 4 of a run with this seed");
  app.add_option("--samples", sheet.samples, "At most so many samples on it, in the order of a shuffled epoch")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{1}, kMaxSamples))
      ->needs(path);
  app.add_option("--augment", words.augment,
                 "training: draws are random resized crops, half of them flipped; evaluation: plain pictures only, six "
                 "samples in a row")
      ->capture_default_str()
      ->check(CLI::IsMember({"training", "evaluation"}))
      ->needs(path);
  app.add_option("--size", sheet.side, "Side of a picture, in pixels")
      ->capture_default_str()
      ->check(CLI::Range(1, kLargestSide))
      ->needs(path);
  app.add_option("--seed", sheet.seed, "Of the order of samples, and of the draws")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()))  // what is below wraps around
      ->needs(path);
}

Check check_named(const std::string& word) {
  if (word == "none") return Check::none;
  return word == "decode" ? Check::decode : Check::headers;
}

void require_sheet(const std::string& sheet, const data::detail::Location& location, DataFormat format) {
  if (format != DataFormat::images) {
    throw UsageError(text("--contact-sheet shows images, and '", location.name,
                          "' is not read as a folder of them; name a folder of images or shards, or leave it out."));
  }
  const auto path = data::detail::parse_location(sheet);
  if (path.kind != data::detail::StorageKind::local) {
    throw UsageError(text("--contact-sheet is '", path.name, "', but a sheet is written to a local file only."));
  }
}

void interpret(const Words& words, const ContactSheetOptions& sheet, InspectOptions& options) {
  const auto location = data::detail::parse_location(options.data);
  options.format = format_named(words.format).value_or(format_of(location.path));
  options.check = check_named(words.check);
  if (!words.sheet) return;
  require_sheet(*words.sheet, location, options.format);
  options.sheet = sheet;
  options.sheet->path = data::detail::parse_location(*words.sheet).path;
  options.sheet->augmentation = words.augment == "training" ? Augmentation::training : Augmentation::evaluation;
}

}  // namespace

const char* name_of(Check check) {
  switch (check) {
    case Check::none:
      return "none";
    case Check::headers:
      return "headers";
    case Check::decode:
      break;
  }
  return "decode";
}

CommandLine read_command_line(int argc, const char* const* argv) {
  CommandLine line;
  line.options.threads = tools::default_threads();
  Words words;
  ContactSheetOptions sheet;
  CLI::App app{kDescription};
  add_data_options(app, line.options, words);
  add_check_options(app, line.options, words);
  add_sheet_options(app, sheet, words);
  line.help = tools::read_arguments(app, "libtrain-inspect", argc, argv);
  if (line.help) return line;
  interpret(words, sheet, line.options);
  return line;
}

}  // namespace libtrain::inspect
