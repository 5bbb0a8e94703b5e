#include <libtrain/data/formats/parquet.hpp>

#include <algorithm>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data {

namespace {

std::string_view name_of(ParquetType type) {
  switch (type) {
    case ParquetType::bytes:
      return "bytes";
    case ParquetType::integer:
      return "integers";
    case ParquetType::real:
      return "real numbers";
    case ParquetType::other:
      break;
  }
  return "another type";
}

template <typename Value>
std::span<const Value> of_row(const std::vector<Value>& values, const std::vector<std::size_t>& ends,
                              std::uint64_t row) {
  const std::size_t begin = row == 0 ? 0 : ends[row - 1];
  return std::span{values}.subspan(begin, ends[row] - begin);
}

}  // namespace

const ParquetValues& ParquetRows::column_at(std::uint64_t row, std::size_t column) const {
  if (column >= columns_.size()) {
    throw UsageError(text(subject_, ": column ", column, " was requested, but ", columns_.size(), " were read."));
  }
  if (row >= rows_) throw UsageError(text(subject_, ": row ", row, " was requested, but it has ", rows_, " rows."));
  return columns_[column];
}

const ParquetValues& ParquetRows::values_at(std::uint64_t row, std::size_t column, ParquetType type, bool list) const {
  const auto& values = column_at(row, column);
  if (values.type != type || values.list != list) {
    throw UsageError(text(subject_, ", column '", values.name, "': it contains ", values.list ? "lists of " : "",
                          name_of(values.type), " and was read as ", list ? "lists of " : "", name_of(type), "."));
  }
  if (values.nulls[row]) {
    throw EnvironmentError(
        text(subject_, ", column '", values.name, "', row ", row, " of the group: expected a value, found a null."));
  }
  return values;
}

bool ParquetRows::is_null(std::uint64_t row, std::size_t column) const {
  return column_at(row, column).nulls[row];
}

std::string_view ParquetRows::bytes(std::uint64_t row, std::size_t column) const {
  return values_at(row, column, ParquetType::bytes, false).bytes[row];
}

std::int64_t ParquetRows::integer(std::uint64_t row, std::size_t column) const {
  return values_at(row, column, ParquetType::integer, false).integers[row];
}

double ParquetRows::real(std::uint64_t row, std::size_t column) const {
  return values_at(row, column, ParquetType::real, false).reals[row];
}

std::span<const std::string_view> ParquetRows::bytes_list(std::uint64_t row, std::size_t column) const {
  const auto& values = values_at(row, column, ParquetType::bytes, true);
  return of_row(values.bytes, values.ends, row);
}

std::span<const std::int64_t> ParquetRows::integer_list(std::uint64_t row, std::size_t column) const {
  const auto& values = values_at(row, column, ParquetType::integer, true);
  return of_row(values.integers, values.ends, row);
}

std::span<const double> ParquetRows::real_list(std::uint64_t row, std::size_t column) const {
  const auto& values = values_at(row, column, ParquetType::real, true);
  return of_row(values.reals, values.ends, row);
}

std::size_t ParquetFile::column(const std::string& name) const {
  const auto found = std::ranges::find(columns_, name, &ParquetColumn::name);
  if (found != columns_.end()) return static_cast<std::size_t>(found - columns_.begin());
  std::vector<std::string> names;
  for (const auto& column : columns_) names.push_back(column.name);
  throw EnvironmentError(text("Parquet file '", name_, "': expected a column '", name, "', found the columns ",
                              join(names, ", "), ". Name the column to read."));
}

}  // namespace libtrain::data
