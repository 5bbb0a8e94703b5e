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

/// The type as which the values of a Parquet column are read.
enum class ParquetType : std::uint8_t {
  bytes,    ///< strings and binary values of any kind, dictionary-encoded or not
  integer,  ///< booleans and integers of all widths, as std::int64_t
  real,     ///< float and double, as double
  other,    ///< cannot be read: dates, times, decimals, half floats, maps, lists of other types
};

/// The values of one column in the order of the rows.
struct ParquetValues {
  std::string name = {};
  ParquetType type = ParquetType::other;
  bool list = false;                         ///< each row has any number of values, none of them null
  std::vector<bool> nulls = {};              ///< for each row, whether it has no value
  std::vector<std::size_t> ends = {};        ///< for each row of a list column, the end of its values
  std::vector<std::string_view> bytes = {};  ///< values of this type only; empty for a row without a value
  std::vector<std::int64_t> integers = {};   ///< likewise; 0 for a row without a value
  std::vector<double> reals = {};            ///< likewise; 0 for a row without a value
};

/// Some columns of a row group, in memory. Immutable: any thread may read it. Copies share the memory of the bytes.
///
/// `row` is below size(); `column` is the position among the requested columns. All accessors throw UsageError for a
/// row or column out of range and for a column of another type; all but is_null throw EnvironmentError, which names
/// file, row group, column and row, for a null.
class ParquetRows {
 public:
  /// `subject` names the row group in messages. `memory` owns the bytes of the string views in `columns`.
  ParquetRows(std::string subject, std::uint64_t rows, std::vector<ParquetValues> columns,
              std::shared_ptr<const void> memory)
      : subject_(std::move(subject)), rows_(rows), columns_(std::move(columns)), memory_(std::move(memory)) {}

  std::uint64_t size() const { return rows_; }

  bool is_null(std::uint64_t row, std::size_t column) const;

  /// The value of a row of a column that is not a list. Bytes lie in the memory of the rows.
  std::string_view bytes(std::uint64_t row, std::size_t column) const;
  std::int64_t integer(std::uint64_t row, std::size_t column) const;
  double real(std::uint64_t row, std::size_t column) const;

  /// The values of a row of a list column, in the memory of the rows.
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
  /// Limit of the size of the requested columns of a row group: the uncompressed size in the file, at least 16 bytes
  /// per value. Arrow's buffers may then take four times as much and 16 MiB; reading fails beyond that.
  std::uint64_t maximum_row_group_bytes = std::uint64_t{1} << 30;
};

/// A column: a leaf of the file's schema, or a list of leaves. The name of a field in a struct contains the struct,
/// such as "image.bytes" in the data sets of Hugging Face.
struct ParquetColumn {
  std::string name = {};
  ParquetType type = ParquetType::other;
  bool list = false;
  std::string file_type = {};  ///< Arrow's name of the type, such as "uint8" or "list<element: string>"
};

namespace detail {

struct ParquetContent;

}  // namespace detail

/// A Parquet file, read by Apache Arrow one row group at a time: each requested column is one read on the calling
/// thread. Copies share the open file. Any thread may call it, several at once.
///
/// Errors are EnvironmentError that name the file, and the row group and column if these are damaged; exceptions of
/// File::read_at, such as StorageUnavailable, pass unchanged. Checksums of pages are verified if the file has them.
class ParquetFile {
 public:
  /// Reads the metadata at the file's end. Throws UsageError without a file, EnvironmentError as well if this libtrain
  /// was built without Apache Arrow.
  explicit ParquetFile(std::unique_ptr<const File> file, const ParquetOptions& options = {});

  const std::string& name() const { return name_; }
  const std::vector<ParquetColumn>& columns() const { return columns_; }

  /// The position of the column `name` in columns(). Throws EnvironmentError if it does not exist.
  std::size_t column(const std::string& name) const;

  std::uint64_t bytes() const { return bytes_; }  ///< of the whole file

  std::size_t row_groups() const { return group_rows_.size(); }

  /// The number of rows of all row groups, and of one row group.
  std::uint64_t rows() const { return rows_; }
  std::uint64_t rows(std::size_t row_group) const { return group_rows_.at(row_group); }

  /// Reads the named columns of row group number `row_group`, which is below row_groups(). Throws UsageError for a row
  /// group out of range; EnvironmentError as well for a column that does not exist or has the type `other`, for columns
  /// that are larger than the options allow, for an integer above 2^63 - 1, and for a null in a list.
  ParquetRows read_row_group(std::size_t row_group, const std::vector<std::string>& columns) const;

 private:
  std::string name_;
  std::uint64_t bytes_;
  std::uint64_t maximum_row_group_bytes_;
  std::vector<ParquetColumn> columns_;
  std::vector<std::uint64_t> group_rows_;
  std::uint64_t rows_ = 0;
  std::shared_ptr<const detail::ParquetContent> content_;
};

}  // namespace libtrain::data
