#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace libtrain::data::detail {

/// How many rows of a picture are resampled side by side: as many bytes as the widest common vectors hold.
inline constexpr std::size_t kLanes = 32;

/// Bytes are transposed in squares of this side.
inline constexpr std::size_t kTransposeTile = 16;

/// Turns kLanes rows into columns: columns[j * kLanes + r] = rows[r][j] for j below `count`. `columns` has room for
/// `count` rounded up to a multiple of kTransposeTile columns; what is beyond `count` becomes zero.
void rows_to_columns(const std::array<const std::uint8_t*, kLanes>& rows, std::size_t count, std::uint8_t* columns);

/// Turns `count` columns of kLanes bytes, `column_stride` bytes apart, into rows:
/// rows[r * row_stride + j] = columns[j * column_stride + r].
void columns_to_rows(const std::uint8_t* columns, std::size_t column_stride, std::size_t count, std::uint8_t* rows,
                     std::size_t row_stride);

}  // namespace libtrain::data::detail
