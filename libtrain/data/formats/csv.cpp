#include <libtrain/data/formats/csv.hpp>

#include <algorithm>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/csv_scanner.hpp>

namespace libtrain::data {

namespace {

constexpr char kLineFeed = '\n';
constexpr char kCarriageReturn = '\r';

void require_usable(const CsvOptions& options) {
  const auto is_line_end = [](char character) { return character == kLineFeed || character == kCarriageReturn; };
  const bool same = options.quote == options.separator;
  if (same || is_line_end(options.separator) || (options.quote && is_line_end(*options.quote))) {
    throw UsageError("The separator and the quote of a CSV file must differ from each other and from line ends.");
  }
}

std::vector<std::string> fields_of(std::string_view row, const CsvOptions& options) {
  detail::CsvFields fields{row, options};
  std::vector<std::string> result;
  while (auto field = fields.next()) result.push_back(std::move(*field));
  return result;
}

}  // namespace

CsvFile::CsvFile(std::shared_ptr<const File> file, const CsvOptions& options)
    : file_(std::move(file)), options_(options) {
  detail::require_file(file_.get(), "CSV file");
  require_usable(options_);
  detail::CsvScanner scanner{file_->name(), options_};
  detail::for_each_piece(*file_, [&](std::string_view piece, std::uint64_t) { scanner.add(piece); });
  scanner.finish();
  auto boundaries = scanner.take_boundaries();
  if (options_.header == CsvHeader::none) {
    for (std::size_t column = 0; column < scanner.fields(); ++column) columns_.push_back(std::to_string(column));
  } else {
    if (boundaries.size() < 2) {
      throw EnvironmentError(text("CSV file '", file_->name(), "', line 1, byte offset ", file_->size(),
                                  ": expected a header, found the end of the file."));
    }
    columns_ = fields_of(detail::read_range(*file_, boundaries[0], boundaries[1] - boundaries[0]), options_);
    boundaries.erase(boundaries.begin());
  }
  rows_ = detail::RowOffsets{std::move(boundaries)};
}

std::size_t CsvFile::column(std::string_view name) const {
  const auto found = std::find(columns_.begin(), columns_.end(), name);
  if (found == columns_.end()) {
    throw UsageError(
        text("CSV file '", file_->name(), "' has no column '", name, "'; it has: ", join(columns_, ", "), "."));
  }
  if (std::find(found + 1, columns_.end(), name) != columns_.end()) {
    throw UsageError(
        text("CSV file '", file_->name(), "' has more than one column '", name, "'; name it by its number."));
  }
  return static_cast<std::size_t>(found - columns_.begin());
}

std::string CsvFile::field(std::uint64_t row, std::size_t column) const {
  if (column >= columns_.size()) {
    throw UsageError(text("CSV file '", file_->name(), "' has no column ", column, "; it has ", columns_.size(), "."));
  }
  const std::string text_of_row = text_of(row);
  detail::CsvFields fields{text_of_row, options_};
  for (std::size_t skipped = 0; skipped < column; ++skipped) {
    if (!fields.next()) break;
  }
  auto field = fields.next();
  if (!field) {
    throw EnvironmentError(text("CSV file '", file_->name(), "', byte offset ", rows_[row].begin, ": expected ",
                                columns_.size(), " fields, found fewer; the file has changed."));
  }
  return std::move(*field);
}

std::vector<std::string> CsvFile::row(std::uint64_t row) const {
  return fields_of(text_of(row), options_);
}

std::string CsvFile::text_of(std::uint64_t row) const {
  const auto extent = rows_[row];
  return detail::read_range(*file_, extent.begin, extent.length);
}

}  // namespace libtrain::data
