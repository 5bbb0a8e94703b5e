#pragma once

#include <cstddef>
#include <cstdint>

namespace libtrain::data::detail {

/// Weights are multiples of 2^-22, as in Pillow: 32 bits, less 8 of the pixel and 2 that other filters need.
inline constexpr int kPrecisionBits = 32 - 8 - 2;

/// The next number of taps from `taps` (at least 1) on that a loop was written for.
constexpr std::size_t padded_taps(std::size_t taps) {
  if (taps <= 2) return 2;
  return taps <= 6 ? taps : (taps + 7) / 8 * 8;
}

/// One pass of a resize, in whichever direction: output o is `count` bytes,
///
///   to[o * to_stride + i] = (sum over k of weights[o * taps + k] * from[(begins[o] + k) * from_stride + i]) / 2^22
///
/// rounded to nearest, halves up, and at most 255. The weights are not negative and add up to 2^22, within rounding.
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

}  // namespace libtrain::data::detail
