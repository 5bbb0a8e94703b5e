#include <tools/inspect/inspect.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <libtrain/data/formats/csv.hpp>
#include <libtrain/data/formats/detail/file_buffer.hpp>
#include <libtrain/data/storage/file.hpp>
#include <libtrain/data/storage/open_storage.hpp>

namespace libtrain::inspect {

namespace {

// A file whose rows are read one after the other: one read of the file serves many rows, because each read takes long
// in an object store. Not to be used after an error.
class BufferedFile final : public data::File {
 public:
  explicit BufferedFile(std::unique_ptr<const data::File> file) : file_(std::move(file)), window_(*file_) {}

  const std::string& name() const override { return file_->name(); }
  std::uint64_t size() const override { return file_->size(); }

  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    if (to.empty()) return;
    data::detail::require_range(*file_, offset, to.size());
    const std::lock_guard lock(mutex_);
    const std::string_view bytes = window_.at(offset, to.size());
    std::memcpy(to.data(), bytes.data(), bytes.size());
  }

 private:
  std::unique_ptr<const data::File> file_;
  mutable std::mutex mutex_;
  mutable data::detail::ReadWindow window_;
};

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
