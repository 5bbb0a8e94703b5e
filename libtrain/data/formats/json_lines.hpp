#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <libtrain/data/formats/text_table.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data {

/// A file with one JSON object a line (https://jsonlines.org). Lines of white space are no rows.
///
/// Opening reads the file once, a megabyte at a time, and keeps where rows begin: 8 bytes a row. A row is read and
/// parsed, by simdjson, when a field of it is asked for; then it is checked as a whole. Functions throw UsageError for
/// a row that is not below size(), and EnvironmentError, with the file, the line and the byte offset, for a row that is
/// not an object, has no such key (of the same key twice, the last counts) or a value of another type.
class JsonLines final : public TextTable {
 public:
  /// Throws what File::read_at throws, and UsageError without a file.
  explicit JsonLines(std::shared_ptr<const File> file);

  std::uint64_t size() const override { return rows_.size(); }

  /// A string, its escapes resolved; a number as it is written; true or false.
  std::string field(std::uint64_t row, std::string_view column) const override;

  double number(std::uint64_t row, std::string_view column) const;
  std::int64_t integer(std::uint64_t row, std::string_view column) const;

  /// The line as it is, without white space around it. Not checked.
  std::string line(std::uint64_t row) const;

 private:
  std::shared_ptr<const File> file_;
  detail::RowOffsets rows_;
};

}  // namespace libtrain::data
