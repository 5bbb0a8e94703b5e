#pragma once

#include <libtrain/data/formats/parquet_rows.hpp>

namespace arrow {
class Array;
class DataType;
}  // namespace arrow

namespace libtrain::data::detail {

/// How values of this type of Arrow's are read: `other` for nested types.
ParquetType parquet_type_of(const arrow::DataType& type);

/// Whether this is a type of lists that append_rows() reads, of whatever values.
bool is_parquet_list(const arrow::DataType& type);

/// Adds the rows of `array` to `to`, whose type, and whether it is of lists, must be those of the array's type. Bytes
/// are not copied: the array must outlive them. Throws EnvironmentError, "row <number>: <expected and found>", for a
/// null in a list, an integer above 2^63 - 1, and an index outside of its dictionary.
void append_rows(const arrow::Array& array, ParquetValues& to);

}  // namespace libtrain::data::detail
