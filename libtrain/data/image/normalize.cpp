#include <libtrain/data/image/normalize.hpp>

#include <cstring>

#include <libtrain/base/vector_clones.hpp>
#include <libtrain/numeric/float16.hpp>

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace libtrain::data::detail {

namespace {

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

// The processor's own conversion, which GCC 12 uses for one number at a time. As narrow() for all but NaN. Returns
// how many numbers it wrote: the whole vectors.
__attribute__((target("avx2,f16c"))) std::size_t float16_by_f16c(const std::uint8_t* from, const float* mean,
                                                                 const float* factor, std::size_t count,
                                                                 std::uint16_t* to) {
  constexpr std::size_t kLanes = 8;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + i));
    const __m256 value = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
    const __m256 normal = _mm256_mul_ps(_mm256_sub_ps(value, _mm256_loadu_ps(mean + i)), _mm256_loadu_ps(factor + i));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm256_cvtps_ph(normal, _MM_FROUND_TO_NEAREST_INT));
  }
  return i;
}

// Clang knows "f16c" by name from version 18 on.
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
