#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace libtrain::data {

/// What the values of a Parquet column are read as.
enum class ParquetType : std::uint8_t {
  bytes,    ///< strings and binary values of any kind, dictionary-encoded or not
  integer,  ///< booleans and integers of all widths, as std::int64_t
  real,     ///< float and double, as double
  other,    ///< not read: dates, times, decimals, half floats, maps, lists of other than the above
};

/// The values of one column, row after row.
struct ParquetValues {
  std::string name = {};
  ParquetType type = ParquetType::other;
  bool list = false;                         ///< each row has any number of values, none of them null
  std::vector<bool> nulls = {};              ///< of each row, whether it has no value
  std::vector<std::size_t> ends = {};        ///< of each row of a list: where its values end; they follow each other
  std::vector<std::string_view> bytes = {};  ///< of this type only; a row without a value has an empty one
  std::vector<std::int64_t> integers = {};   ///< likewise, 0
  std::vector<double> reals = {};            ///< likewise, 0
};

/// Some columns of a row group, in memory. Immutable: any thread may read it. Copies share the memory of the bytes.
///
/// `row` is below size(); `column` is the position among the columns that were asked for. All accessors throw
/// UsageError for a row or a column beyond, and for one of another type; and EnvironmentError, which names file, row
/// group, column and row, for a null (but is_null).
class ParquetRows {
 public:
  /// `subject` names the row group in messages. `memory` keeps alive what the string views in `columns` point at.
  ParquetRows(std::string subject, std::uint64_t rows, std::vector<ParquetValues> columns,
              std::shared_ptr<const void> memory)
      : subject_(std::move(subject)), rows_(rows), columns_(std::move(columns)), memory_(std::move(memory)) {}

  std::uint64_t size() const { return rows_; }

  bool is_null(std::uint64_t row, std::size_t column) const;

  /// The value of a row of a column that is no list. Bytes are those of the rows' memory.
  std::string_view bytes(std::uint64_t row, std::size_t column) const;
  std::int64_t integer(std::uint64_t row, std::size_t column) const;
  double real(std::uint64_t row, std::size_t column) const;

  /// The values of a row of a column of lists, in the rows' memory.
  std::span<const std::string_view> bytes_list(std::uint64_t row, std::size_t column) const;
  std::span<const std::int64_t> integer_list(std::uint64_t row, std::size_t column) const;
  std::span<const double> real_list(std::uint64_t row, std::size_t column) const;

 private:
  const ParquetValues& column_at(std::uint64_t row, std::size_t column) const;
  const ParquetValues& values_at(std::uint64_t row, std::size_t column, ParquetType type, bool list) const;

  std::string subject_;
  std::uint64_t rows_;
  std::vector<ParquetValues> columns_;
  std::shared_ptr<const void> memory_;
};

}  // namespace libtrain::data
