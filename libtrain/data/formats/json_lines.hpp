#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <libtrain/data/formats/text_table.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data {

/// A file with one JSON object per line (https://jsonlines.org). Lines of white space are not rows.
///
/// Opening reads the file once, a megabyte at a time, and keeps the offsets of rows: 8 bytes per row. A request for a
/// field reads and parses its row, by simdjson, and checks the whole row. Functions throw UsageError for a row that is
/// not below size(), and EnvironmentError, with the file, the line and the byte offset, for a row that is not an
/// object, does not have the key (of duplicate keys, the last counts) or has a value of another type.
class JsonLines {
 public:
  /// Throws what File::read_at throws, EnvironmentError for a line above 64 MiB, and UsageError without a file.
  explicit JsonLines(std::shared_ptr<const File> file);

  std::uint64_t size() const { return rows_.size(); }

  /// A string with its escapes resolved, a number as it is written, or "true" or "false".
  std::string field(std::uint64_t row, std::string_view column) const;

  double number(std::uint64_t row, std::string_view column) const;
  std::int64_t integer(std::uint64_t row, std::string_view column) const;

  /// The line without white space around it. Not checked.
  std::string line(std::uint64_t row) const;

 private:
  std::shared_ptr<const File> file_;
  detail::RowOffsets rows_;
};

}  // namespace libtrain::data
