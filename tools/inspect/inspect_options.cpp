#include <tools/inspect/inspect_options.hpp>

#include <array>
#include <limits>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/detail/location.hpp>

#include <tools/common/tool.hpp>

namespace libtrain::inspect {

namespace {

constexpr const char* kDescription =
    "Describes a data set, finds damaged samples, and shows the pictures that a loader makes of its images. The exit\n"
    "code is 3 if a sample is damaged or cannot be read, or a class has no images. Duplicates, missing labels and\n"
    "small images are reported, but are not errors.";

constexpr std::uint64_t kMaxSamples = 1'000'000;
constexpr int kLargestSide = 4096;

using FormatEntry = std::pair<std::string_view, DataFormat>;

constexpr std::array<FormatEntry, 6> kFormatNames{{{"images", DataFormat::images},
                                                   {"coco", DataFormat::coco},
                                                   {"csv", DataFormat::csv},
                                                   {"tsv", DataFormat::tsv},
                                                   {"json-lines", DataFormat::json_lines},
                                                   {"idx", DataFormat::idx}}};

// A compressed IDX file is not supported: its reader has the message for that.
constexpr std::array<FormatEntry, 8> kFormatEndings{{{".json", DataFormat::coco},
                                                     {".csv", DataFormat::csv},
                                                     {".tsv", DataFormat::tsv},
                                                     {".jsonl", DataFormat::json_lines},
                                                     {".ndjson", DataFormat::json_lines},
                                                     {".idx", DataFormat::idx},
                                                     {"-ubyte", DataFormat::idx},
                                                     {"-ubyte.gz", DataFormat::idx}}};

DataFormat format_of(std::string_view name) {
  const std::string small = data::detail::lower_case(name);
  for (const auto& [ending, format] : kFormatEndings) {
    if (small.ends_with(ending)) return format;
  }
  return DataFormat::images;
}

// std::nullopt for "auto".
std::optional<DataFormat> format_named(std::string_view word) {
  for (const auto& [name, format] : kFormatNames) {
    if (word == name) return format;
  }
  return std::nullopt;
}

// The values of options before they are interpreted.
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
                 "images, coco, csv, tsv, json-lines or idx; auto: by the end of the name; .json is COCO")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "images", "coco", "csv", "tsv", "json-lines", "idx"}));
  app.add_option("--prefix", options.prefix, "Read only shards whose names begin with it, such as those of one split");
}

void add_check_options(CLI::App& app, InspectOptions& options, Words& words) {
  app.add_option("--check", words.check,
                 "headers: check every image's bytes and header, every row's fields; decode: also decode every image; "
                 "none: only list and open the data")
      ->capture_default_str()
      ->check(CLI::IsMember({"none", "headers", "decode"}));
  app.add_option("--threads", options.threads, "Threads that check images")
      ->capture_default_str()
      ->check(CLI::Range(1, tools::kMaxThreads));
  app.add_flag("--json", options.as_json, "Print one JSON object on one line instead of text");
  app.add_flag("--quiet", options.quiet, "Show no progress (it is shown only on a terminal)");
}

void add_sheet_options(CLI::App& app, ContactSheetOptions& sheet, Words& words) {
  auto* const path = app.add_option("--contact-sheet", words.sheet,
                                    "A PNG to write: for each sample a row of the plain picture and five augmented "
                                    "ones, those of epochs 0 to 4 of a run with this seed");
  app.add_option("--samples", sheet.samples, "Largest number of samples on the sheet, in the order of a shuffled epoch")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{1}, kMaxSamples))
      ->needs(path);
  app.add_option("--augment", words.augment,
                 "training: random resized crops, half of them flipped; evaluation: plain pictures only, six samples "
                 "per row")
      ->capture_default_str()
      ->check(CLI::IsMember({"training", "evaluation"}))
      ->needs(path);
  app.add_option("--size", sheet.side, "Side of a picture, in pixels")
      ->capture_default_str()
      ->check(CLI::Range(1, kLargestSide))
      ->needs(path);
  app.add_option("--seed", sheet.seed, "Seed of the order of samples and of the augmentation")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()))  // negative ones would wrap around
      ->needs(path);
}

Check check_named(const std::string& word) {
  if (word == "none") return Check::none;
  return word == "decode" ? Check::decode : Check::headers;
}

void require_sheet(const std::string& sheet, const data::detail::Location& location, DataFormat format) {
  if (format != DataFormat::images) {
    throw UsageError(
        text("--contact-sheet shows images, and '", location.name,
             "' is not read as a folder of images. Name a folder of images or shards, or remove the option."));
  }
  const auto path = data::detail::parse_location(sheet);
  if (path.kind != data::detail::StorageKind::local) {
    throw UsageError(text("--contact-sheet is '", path.name,
                          "', but a contact sheet can only be written to a local file. Set a local path."));
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
