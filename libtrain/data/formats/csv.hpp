#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/data/formats/text_table.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data {

/// The source of the names of columns.
enum class CsvHeader {
  first_row,
  none,  ///< columns are called "0", "1", ...
};

struct CsvOptions {
  char separator = ',';             ///< '\t' for TSV
  std::optional<char> quote = '"';  ///< std::nullopt: quotes are ordinary characters, as in many TSV files
  CsvHeader header = CsvHeader::first_row;
};

/// A CSV file according to RFC 4180: fields may be in quotes, in which separators and line breaks are text and two
/// quotes are one. Lines end with LF or CRLF, which the last line may omit. A byte order mark is skipped; empty lines
/// are not rows.
///
/// Opening reads the file once, a megabyte at a time, checks it, and keeps the offsets of rows: 8 bytes per row. Rows
/// are read on request.
class CsvFile {
 public:
  /// Throws EnvironmentError with the file, the line and the byte offset for rows with different numbers of fields, a
  /// quote in a field that does not begin with one, text after a closing quote, a missing closing quote, a carriage
  /// return without a line feed, UTF-16, a row above 64 MiB, and a missing header; UsageError without a file, and for a
  /// separator that is the quote or ends lines.
  explicit CsvFile(std::shared_ptr<const File> file, const CsvOptions& options = {});

  /// The number of rows without the header.
  std::uint64_t size() const { return rows_.size(); }

  const std::vector<std::string>& columns() const { return columns_; }

  /// The number of the column `name`. Throws UsageError if there is none or more than one.
  std::size_t column(std::string_view name) const;

  /// The text of one field. Throws UsageError for a row that is not below size() and for a column that does not exist.
  std::string field(std::uint64_t row, std::string_view name) const { return field(row, column(name)); }
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

namespace detail {

/// Reads a CSV file once, a megabyte at a time, and calls visit(fields, line) for each row, the header included, with
/// the line, from 1 on, in which it begins. `fields` are valid during the call, which may change them. Rows for which
/// CsvFile's constructor throws are passed to `refuse`, which throws, or returns to go on with the next line. Throws
/// as that constructor for a malformed header, a quote that is not closed, which could hide any number of rows, a row
/// of more than 64 MiB, and UTF-16.
void for_each_csv_row(const File& file, const CsvOptions& options,
                      const std::function<void(std::span<std::string> fields, std::uint64_t line)>& visit,
                      const std::function<void(const std::string& message)>& refuse);

}  // namespace detail

}  // namespace libtrain::data
