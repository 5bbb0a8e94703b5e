#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <libtrain/data/image/image.hpp>

namespace libtrain::data::detail {

/// Weights are multiples of 2^-22, as in Pillow: 32 bits, minus 8 of the pixel and 2 that other filters need.
inline constexpr int kPrecisionBits = 32 - 8 - 2;

/// The next number of taps, `taps` (at least 1) or more, for which a loop exists.
constexpr std::size_t padded_taps(std::size_t taps) {
  if (taps <= 2) return 2;
  return taps <= 6 ? taps : (taps + 7) / 8 * 8;
}

/// One pass of a resize, in either direction: output o is `count` bytes,
///
///   to[o * to_stride + i] = (sum over k of weights[o * taps + k] * from[(begins[o] + k) * from_stride + i]) / 2^22
///
/// rounded to nearest, halves up, and at most 255. The weights are not negative, and their sum is 2^22 within rounding.
struct ResamplePass {
  const std::uint8_t* from = nullptr;
  std::size_t from_stride = 0;  ///< bytes from an element to the next
  const std::size_t* begins = nullptr;
  const std::int32_t* weights = nullptr;
  std::size_t taps = 0;  ///< a value of padded_taps
  std::size_t outputs = 0;
  std::uint8_t* to = nullptr;    ///< does not overlap `from`
  std::ptrdiff_t to_stride = 0;  ///< bytes from an output to the next, negative for a mirrored order
  std::size_t count = 0;
};

void resample(const ResamplePass& pass);

/// The number of rows that are resampled side by side: the bytes of the widest common vectors.
inline constexpr std::size_t kLanes = 32;

/// Bytes are transposed in squares of this side.
inline constexpr std::size_t kTransposeTile = 16;

/// Turns kLanes rows into columns: columns[j * kLanes + r] = rows[r][j] for j below `count`. `columns` has memory for
/// `count` columns, rounded up to a multiple of kTransposeTile; those beyond `count` become zero.
void rows_to_columns(const std::array<const std::uint8_t*, kLanes>& rows, std::size_t count, std::uint8_t* columns);

/// Turns `count` columns of kLanes bytes, `column_stride` bytes apart, into rows:
/// rows[r * row_stride + j] = columns[j * column_stride + r].
void columns_to_rows(const std::uint8_t* columns, std::size_t column_stride, std::size_t count, std::uint8_t* rows,
                     std::size_t row_stride);

/// Stores (from[i] - mean[i]) * factor[i] as `type`, rounded to nearest, ties to even; for uint8 the bytes themselves.
/// A difference and then a product give the same bits on every processor; a product and then a sum may be fused.
void normalize(const std::uint8_t* from, const float* mean, const float* factor, std::size_t count, PixelType type,
               void* to);

}  // namespace libtrain::data::detail
