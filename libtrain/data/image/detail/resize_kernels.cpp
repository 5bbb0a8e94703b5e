#include <libtrain/data/image/detail/resize_kernels.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

#include <libtrain/base/detail/vector_clones.hpp>
#include <libtrain/numeric/detail/float16.hpp>

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace libtrain::data::detail {

namespace {

constexpr std::int32_t kHalf = 1 << (kPrecisionBits - 1);

// The bytes of a pixel of three channels in kLanes rows, by far the most common count: a constant saves the prologue of
// the loop for each output.
constexpr std::size_t kColorLanes = 3 * kLanes;

// Sums that are kept in memory if there are too many taps for registers.
constexpr std::size_t kStrip = 512;

LIBTRAIN_INLINED std::uint8_t rounded(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::min(sum >> kPrecisionBits, 255));
}

// A fold expression writes out the terms, so that the loop over i is the innermost one and is vectorised.
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

// If kTaps is 0, there are `taps`, a multiple of 8; if kCount is 0, `count`.
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

// The clones. __restrict is on these functions, which are not inlined, because compilers ignore it on inlined ones.

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

// Transposing. Compilers do not find the shuffles of a transposed loop over bytes, so they are written out with GCC's
// and Clang's portable vectors.

typedef std::uint8_t Bytes __attribute__((vector_size(16)));
static_assert(sizeof(Bytes) == kTransposeTile && kLanes % kTransposeTile == 0);

struct Tile {
  Bytes rows[kTransposeTile];
};

inline Bytes load(const std::uint8_t* from, std::size_t count) {
  Bytes result{};
  if (count >= kTransposeTile) {
    std::memcpy(&result, from, kTransposeTile);
  } else {
    std::memcpy(&result, from, count);
  }
  return result;
}

inline void store(const Bytes& bytes, std::uint8_t* to, std::size_t count) {
  if (count >= kTransposeTile) {
    std::memcpy(to, &bytes, kTransposeTile);
  } else {
    std::memcpy(to, &bytes, count);
  }
}

// Interleaves the bytes of rows i and i + 8 to rows 2i and 2i + 1. The position of an element, as the 8 bits of its row
// and column, rotates by one bit: after four times row and column are exchanged.
inline void interleave(const Tile& from, Tile& to) {
  for (std::size_t i = 0; i < kTransposeTile / 2; ++i) {
    const Bytes upper = from.rows[i];
    const Bytes lower = from.rows[i + kTransposeTile / 2];
    to.rows[2 * i] = __builtin_shufflevector(upper, lower, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    to.rows[2 * i + 1] =
        __builtin_shufflevector(upper, lower, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  }
}

inline void transpose(Tile& tile) {
  Tile other;
  interleave(tile, other);
  interleave(other, tile);
  interleave(tile, other);
  interleave(other, tile);
}

// Normalising.

using libtrain::detail::BFloat16;
using libtrain::detail::Float16;

template <typename T>
LIBTRAIN_INLINED std::uint16_t bits_of(float value) {
  return static_cast<std::uint16_t>(libtrain::detail::narrow<T>(value));
}

LIBTRAIN_INLINED float normalized(std::uint8_t value, float mean, float factor) {
  return (static_cast<float>(std::int32_t{value}) - mean) * factor;
}

LIBTRAIN_VECTOR_CLONES void float32_clones(const std::uint8_t* __restrict from, const float* __restrict mean,
                                           const float* __restrict factor, std::size_t count, float* __restrict to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = normalized(from[i], mean[i], factor[i]);
}

LIBTRAIN_VECTOR_CLONES void float16_clones(const std::uint8_t* __restrict from, const float* __restrict mean,
                                           const float* __restrict factor, std::size_t count,
                                           std::uint16_t* __restrict to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = bits_of<Float16>(normalized(from[i], mean[i], factor[i]));
}

#ifdef __x86_64__

// The processor's conversion, which GCC 12 uses for one number at a time. Equal to narrow() except for NaN. Returns the
// number of elements in whole vectors, which it has written.
__attribute__((target("avx2,f16c"))) std::size_t float16_by_f16c(const std::uint8_t* from, const float* mean,
                                                                 const float* factor, std::size_t count,
                                                                 std::uint16_t* to) {
  constexpr std::size_t kFloats = 8;  // of a vector
  std::size_t i = 0;
  for (; i + kFloats <= count; i += kFloats) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + i));
    const __m256 value = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
    const __m256 normal = _mm256_mul_ps(_mm256_sub_ps(value, _mm256_loadu_ps(mean + i)), _mm256_loadu_ps(factor + i));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm256_cvtps_ph(normal, _MM_FROUND_TO_NEAREST_INT));
  }
  return i;
}

// Clang's __builtin_cpu_supports knows "f16c" only from version 18 on.
bool find_f16c() {
  unsigned int a = 0;
  unsigned int b = 0;
  unsigned int c = 0;
  unsigned int d = 0;
  return __builtin_cpu_supports("avx2") != 0 && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

bool has_f16c() {
  static const bool has = find_f16c();
  return has;
}

#else

std::size_t float16_by_f16c(const std::uint8_t* /*from*/, const float* /*mean*/, const float* /*factor*/,
                            std::size_t /*count*/, std::uint16_t* /*to*/) {
  return 0;
}

bool has_f16c() {
  return false;
}

#endif

void to_float16(const std::uint8_t* from, const float* mean, const float* factor, std::size_t count,
                std::uint16_t* to) {
  const std::size_t done = has_f16c() ? float16_by_f16c(from, mean, factor, count, to) : 0;
  float16_clones(from + done, mean + done, factor + done, count - done, to + done);
}

LIBTRAIN_VECTOR_CLONES void bfloat16_clones(const std::uint8_t* __restrict from, const float* __restrict mean,
                                            const float* __restrict factor, std::size_t count,
                                            std::uint16_t* __restrict to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = bits_of<BFloat16>(normalized(from[i], mean[i], factor[i]));
}

}  // namespace

void resample(const ResamplePass& pass) {
  resample_clones(pass.from, pass.from_stride, pass.begins, pass.weights, pass.taps, pass.outputs, pass.to,
                  pass.to_stride, pass.count);
}

void rows_to_columns(const std::array<const std::uint8_t*, kLanes>& rows, std::size_t count, std::uint8_t* columns) {
  Tile tile;
  for (std::size_t j = 0; j < count; j += kTransposeTile) {
    for (std::size_t lane = 0; lane < kLanes; lane += kTransposeTile) {
      for (std::size_t r = 0; r < kTransposeTile; ++r) tile.rows[r] = load(rows[lane + r] + j, count - j);
      transpose(tile);
      std::uint8_t* to = columns + j * kLanes + lane;
      for (std::size_t x = 0; x < kTransposeTile; ++x) store(tile.rows[x], to + x * kLanes, kTransposeTile);
    }
  }
}

void columns_to_rows(const std::uint8_t* columns, std::size_t column_stride, std::size_t count, std::uint8_t* rows,
                     std::size_t row_stride) {
  Tile tile;
  for (std::size_t j = 0; j < count; j += kTransposeTile) {
    const std::size_t width = std::min(kTransposeTile, count - j);
    for (std::size_t lane = 0; lane < kLanes; lane += kTransposeTile) {
      for (std::size_t x = 0; x < kTransposeTile; ++x) {
        tile.rows[x] = x < width ? load(columns + (j + x) * column_stride + lane, kTransposeTile) : Bytes{};
      }
      transpose(tile);
      for (std::size_t r = 0; r < kTransposeTile; ++r) store(tile.rows[r], rows + (lane + r) * row_stride + j, width);
    }
  }
}

void normalize(const std::uint8_t* from, const float* mean, const float* factor, std::size_t count, PixelType type,
               void* to) {
  switch (type) {
    case PixelType::uint8:
      std::memcpy(to, from, count);
      return;
    case PixelType::float16:
      return to_float16(from, mean, factor, count, static_cast<std::uint16_t*>(to));
    case PixelType::bfloat16:
      return bfloat16_clones(from, mean, factor, count, static_cast<std::uint16_t*>(to));
    case PixelType::float32:
      return float32_clones(from, mean, factor, count, static_cast<float*>(to));
  }
}

}  // namespace libtrain::data::detail
