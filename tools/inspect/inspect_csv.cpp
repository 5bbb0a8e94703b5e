#include <tools/inspect/inspect_csv.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <libtrain/data/formats/csv.hpp>
#include <libtrain/data/storage/open_storage.hpp>

#include <tools/inspect/buffered_file.hpp>

namespace libtrain::inspect {

namespace {

data::CsvOptions csv_options(DataFormat format) {
  if (format == DataFormat::tsv) return {.separator = '\t', .quote = std::nullopt};
  return {};
}

std::vector<std::uint64_t> count_empty_fields(const data::CsvFile& table) {
  std::vector<std::uint64_t> empty(table.columns().size());
  for (std::uint64_t row = 0; row < table.size(); ++row) {
    const auto fields = table.row(row);
    for (std::size_t column = 0; column < fields.size() && column < empty.size(); ++column) {
      if (fields[column].empty()) ++empty[column];
    }
  }
  return empty;
}

}  // namespace

Report inspect_csv(const InspectOptions& options) {
  const auto file = std::make_shared<const BufferedFile>(data::open_file(options.data));
  const data::CsvFile table(file, csv_options(options.format));
  std::vector<std::uint64_t> empty;
  if (options.check != Check::none) empty = count_empty_fields(table);

  Json columns = Json::array();
  for (std::size_t column = 0; column < table.columns().size(); ++column) {
    Json each = Json::object();
    each["name"] = table.columns()[column];
    if (!empty.empty()) each["empty_fields"] = empty[column];
    columns.push_back(std::move(each));
  }
  Report report;
  report.facts["data"] = file->name();
  report.facts["format"] = options.format == DataFormat::tsv ? "TSV" : "CSV";
  report.facts["bytes"] = file->size();
  report.facts["rows"] = table.size();
  report.facts["columns"] = std::move(columns);
  return report;
}

}  // namespace libtrain::inspect
