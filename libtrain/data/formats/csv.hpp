#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/data/formats/text_table.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data {

/// Where the names of columns come from.
enum class CsvHeader {
  first_row,
  none,  ///< columns are called "0", "1", ...
};

enum class CsvEncoding {
  unchecked,
  utf8,  ///< checked when the file is opened
};

struct CsvOptions {
  char separator = ',';             ///< '\t' for TSV
  std::optional<char> quote = '"';  ///< nothing: quotes are ordinary characters, as in many TSV files
  CsvHeader header = CsvHeader::first_row;
  CsvEncoding encoding = CsvEncoding::unchecked;
};

/// A CSV file as RFC 4180 has it: fields may be in quotes, within which separators and line breaks are text and two
/// quotes are one. Lines end with LF or CRLF, the last one need not. A byte order mark is skipped, lines with nothing
/// in them are no rows.
///
/// Opening reads the file once, a megabyte at a time, checks it, and keeps where rows begin: 8 bytes a row. A row is
/// read when it is asked for.
class CsvFile final : public TextTable {
 public:
  /// Throws EnvironmentError with the file, the line and the byte offset for rows of different numbers of fields, a
  /// quote within a field that does not begin with one, text behind a closing quote, a quote that is not closed, a
  /// carriage return alone, UTF-16, a missing header, and what is not UTF-8 where that is asked for; UsageError without
  /// a file.
  explicit CsvFile(std::shared_ptr<const File> file, const CsvOptions& options = {});

  std::uint64_t size() const override { return rows_.size(); }

  const std::vector<std::string>& columns() const { return columns_; }

  /// The column of that name. Throws UsageError where there is none or more than one.
  std::size_t column(std::string_view name) const;

  std::string field(std::uint64_t row, std::string_view name) const override { return field(row, column(name)); }

  /// The same by number. Throws UsageError for a column that is not there.
  std::string field(std::uint64_t row, std::size_t column) const;

  /// All fields of a row.
  std::vector<std::string> row(std::uint64_t row) const;

 private:
  std::string text_of(std::uint64_t row) const;

  std::shared_ptr<const File> file_;
  CsvOptions options_;
  std::vector<std::string> columns_;
  detail::RowOffsets rows_;
};

}  // namespace libtrain::data
