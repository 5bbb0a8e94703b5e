#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace libtrain::data {

/// Rows with named columns of text, read in any order: what CSV files and files of JSON lines have in common. Any
/// thread may read, several at once.
class TextTable {
 public:
  virtual ~TextTable() = default;

  /// How many rows there are, a header not counted.
  virtual std::uint64_t size() const = 0;

  /// The text of one field. Throws UsageError for a row that is not below size(); where the table has no such column
  /// UsageError, or EnvironmentError where only that row lacks it; EnvironmentError where it cannot be read.
  virtual std::string field(std::uint64_t row, std::string_view column) const = 0;
};

}  // namespace libtrain::data
