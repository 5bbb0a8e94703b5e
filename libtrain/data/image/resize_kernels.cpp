#include <libtrain/data/image/resize_kernels.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

#include <libtrain/base/vector_clones.hpp>
#include <libtrain/data/image/transpose.hpp>

namespace libtrain::data::detail {

namespace {

constexpr std::int32_t kHalf = 1 << (kPrecisionBits - 1);

// The bytes of a pixel of three channels in kLanes rows, the most common count by far: a constant saves each output
// the loop's prologue.
constexpr std::size_t kColorLanes = 3 * kLanes;

// Sums that are kept in memory while more taps are added than fit registers.
constexpr std::size_t kStrip = 512;

LIBTRAIN_INLINED std::uint8_t rounded(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::min(sum >> kPrecisionBits, 255));
}

// The terms are spelt out by folding: the loop over i is the innermost, and the one that is vectorised.
template <std::size_t... kTap>
LIBTRAIN_INLINED void add_few(const std::uint8_t* from, std::size_t stride, const std::int32_t* weights,
                              std::uint8_t* to, std::size_t count, std::index_sequence<kTap...>) {
  const std::int32_t weight[] = {weights[kTap]...};
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = rounded((kHalf + ... + (weight[kTap] * std::int32_t{from[kTap * stride + i]})));
  }
}

template <std::size_t... kTap>
LIBTRAIN_INLINED void add_to_sums(const std::uint8_t* from, std::size_t stride, const std::int32_t* weights,
                                  std::int32_t* sums, std::size_t count, std::index_sequence<kTap...>) {
  const std::int32_t weight[] = {weights[kTap]...};
  for (std::size_t i = 0; i < count; ++i) {
    sums[i] = (sums[i] + ... + (weight[kTap] * std::int32_t{from[kTap * stride + i]}));
  }
}

LIBTRAIN_INLINED void add_many(const std::uint8_t* from, std::size_t stride, const std::int32_t* weights,
                               std::size_t taps, std::uint8_t* to, std::size_t count) {
  std::int32_t sums[kStrip];
  for (std::size_t begin = 0; begin < count; begin += kStrip) {
    const std::size_t size = std::min(kStrip, count - begin);
    for (std::size_t i = 0; i < size; ++i) sums[i] = kHalf;
    for (std::size_t tap = 0; tap < taps; tap += 8) {
      add_to_sums(from + tap * stride + begin, stride, weights + tap, sums, size, std::make_index_sequence<8>{});
    }
    for (std::size_t i = 0; i < size; ++i) to[begin + i] = rounded(sums[i]);
  }
}

// kTaps of zero: `taps`, a multiple of 8; kCount of zero: `count`.
template <std::size_t kTaps, std::size_t kCount>
LIBTRAIN_INLINED void add_outputs(const std::uint8_t* from, std::size_t stride, const std::size_t* begins,
                                  const std::int32_t* weights, [[maybe_unused]] std::size_t taps, std::size_t outputs,
                                  std::uint8_t* to, std::ptrdiff_t to_stride, std::size_t count) {
  const std::size_t size = kCount == 0 ? count : kCount;
  for (std::size_t output = 0; output < outputs; ++output) {
    const std::uint8_t* first = from + begins[output] * stride;
    std::uint8_t* place = to + static_cast<std::ptrdiff_t>(output) * to_stride;
    if constexpr (kTaps == 0) {
      add_many(first, stride, weights + output * taps, taps, place, size);
    } else {
      add_few(first, stride, weights + output * kTaps, place, size, std::make_index_sequence<kTaps>{});
    }
  }
}

template <std::size_t kCount>
LIBTRAIN_INLINED void add_by_taps(const std::uint8_t* from, std::size_t stride, const std::size_t* begins,
                                  const std::int32_t* weights, std::size_t taps, std::size_t outputs, std::uint8_t* to,
                                  std::ptrdiff_t to_stride, std::size_t count) {
  switch (taps) {
    case 2:
      return add_outputs<2, kCount>(from, stride, begins, weights, taps, outputs, to, to_stride, count);
    case 3:
      return add_outputs<3, kCount>(from, stride, begins, weights, taps, outputs, to, to_stride, count);
    case 4:
      return add_outputs<4, kCount>(from, stride, begins, weights, taps, outputs, to, to_stride, count);
    case 5:
      return add_outputs<5, kCount>(from, stride, begins, weights, taps, outputs, to, to_stride, count);
    case 6:
      return add_outputs<6, kCount>(from, stride, begins, weights, taps, outputs, to, to_stride, count);
    case 8:
      return add_outputs<8, kCount>(from, stride, begins, weights, taps, outputs, to, to_stride, count);
    default:
      return add_outputs<0, kCount>(from, stride, begins, weights, taps, outputs, to, to_stride, count);
  }
}

// The clones. That pointers do not overlap is told where compilers heed it: at functions that are not inlined.

LIBTRAIN_VECTOR_CLONES void resample_clones(const std::uint8_t* __restrict from, std::size_t stride,
                                            const std::size_t* __restrict begins,
                                            const std::int32_t* __restrict weights, std::size_t taps,
                                            std::size_t outputs, std::uint8_t* __restrict to, std::ptrdiff_t to_stride,
                                            std::size_t count) {
  if (count == kColorLanes) {
    return add_by_taps<kColorLanes>(from, stride, begins, weights, taps, outputs, to, to_stride, count);
  }
  add_by_taps<0>(from, stride, begins, weights, taps, outputs, to, to_stride, count);
}

}  // namespace

void resample(const ResamplePass& pass) {
  resample_clones(pass.from, pass.from_stride, pass.begins, pass.weights, pass.taps, pass.outputs, pass.to,
                  pass.to_stride, pass.count);
}

}  // namespace libtrain::data::detail
