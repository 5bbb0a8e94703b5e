#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <libtrain/data/storage/file.hpp>

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

struct ParquetOptions {
  /// How large the chosen columns of a row group may be, uncompressed as the file has them and at 16 bytes a value.
  /// Arrow's buffers then take at most four times as much and 16 MiB, or reading fails.
  std::uint64_t maximum_row_group_bytes = std::uint64_t{1} << 30;
};

/// A column: a leaf of the file's schema, or a list of such. What lies in a struct is named with the struct, such as
/// "image.bytes" in the data sets of Hugging Face.
struct ParquetColumn {
  std::string name = {};
  ParquetType type = ParquetType::other;
  bool list = false;
  std::string file_type = {};  ///< as Arrow names it, such as "uint8" or "list<element: string>"
};

namespace detail {

struct ParquetContent;

}  // namespace detail

/// A Parquet file, read by Apache Arrow one row group at a time, the unit of access: each chosen column is one read,
/// on the thread that asks. Copies share the open file. Any thread may call it, several at once.
///
/// Errors are EnvironmentError that name the file, and the row group and column where one is at fault; what
/// File::read_at throws, such as StorageUnavailable, comes out as it is. Checksums of pages are verified where the file
/// has them.
class ParquetFile {
 public:
  /// Reads the file's end, which describes it. Throws UsageError without a file, EnvironmentError as well where this
  /// libtrain was built without Apache Arrow.
  explicit ParquetFile(std::unique_ptr<const File> file, const ParquetOptions& options = {});

  const std::string& name() const { return name_; }
  const std::vector<ParquetColumn>& columns() const { return columns_; }

  std::size_t row_groups() const { return group_rows_.size(); }

  /// Rows of all row groups, and of one of them.
  std::uint64_t rows() const { return rows_; }
  std::uint64_t rows(std::size_t row_group) const { return group_rows_.at(row_group); }

  /// The named columns of row group number `row_group`, below row_groups(). Throws UsageError for a row group beyond;
  /// EnvironmentError as well for a column that the file does not have or whose type is `other`, for one that is larger
  /// than the options allow, for an integer above 2^63 - 1, and for a null in a list.
  ParquetRows read_row_group(std::size_t row_group, const std::vector<std::string>& columns) const;

 private:
  std::string name_;
  std::uint64_t maximum_row_group_bytes_;
  std::vector<ParquetColumn> columns_;
  std::vector<std::uint64_t> group_rows_;
  std::uint64_t rows_ = 0;
  std::shared_ptr<const detail::ParquetContent> content_;
};

/// Whether this libtrain was built with Apache Arrow, without which no Parquet is read.
bool has_parquet();

}  // namespace libtrain::data
