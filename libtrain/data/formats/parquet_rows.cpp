#include <libtrain/data/formats/parquet.hpp>

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
    throw UsageError(text(subject_, ": there is no column number ", column, " among the ", columns_.size(), " read."));
  }
  if (row >= rows_) throw UsageError(text(subject_, ": there is no row number ", row, " among ", rows_, "."));
  return columns_[column];
}

const ParquetValues& ParquetRows::values_at(std::uint64_t row, std::size_t column, ParquetType type, bool list) const {
  const auto& values = column_at(row, column);
  if (values.type != type || values.list != list) {
    throw UsageError(text(subject_, ", column '", values.name, "': it holds ", values.list ? "lists of " : "",
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

}  // namespace libtrain::data
