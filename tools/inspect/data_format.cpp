#include <tools/inspect/data_format.hpp>

#include <array>
#include <string>
#include <utility>

#include <libtrain/data/storage/detail/location.hpp>

namespace libtrain::inspect {

namespace {

using Entry = std::pair<std::string_view, DataFormat>;

constexpr std::array<Entry, 6> kNames{{{"images", DataFormat::images},
                                       {"coco", DataFormat::coco},
                                       {"csv", DataFormat::csv},
                                       {"tsv", DataFormat::tsv},
                                       {"json-lines", DataFormat::json_lines},
                                       {"idx", DataFormat::idx}}};

// A compressed IDX file is not read, but what reads them says so best.
constexpr std::array<Entry, 8> kEndings{{{".json", DataFormat::coco},
                                         {".csv", DataFormat::csv},
                                         {".tsv", DataFormat::tsv},
                                         {".jsonl", DataFormat::json_lines},
                                         {".ndjson", DataFormat::json_lines},
                                         {".idx", DataFormat::idx},
                                         {"-ubyte", DataFormat::idx},
                                         {"-ubyte.gz", DataFormat::idx}}};

}  // namespace

DataFormat format_of(std::string_view name) {
  const std::string small = data::detail::lower_case(name);
  for (const auto& [ending, format] : kEndings) {
    if (small.ends_with(ending)) return format;
  }
  return DataFormat::images;
}

std::optional<DataFormat> format_named(std::string_view word) {
  for (const auto& [name, format] : kNames) {
    if (word == name) return format;
  }
  return std::nullopt;
}

}  // namespace libtrain::inspect
