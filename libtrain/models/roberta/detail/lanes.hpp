#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>

#include <c10/util/BFloat16.h>

#include <libtrain/base/detail/vector_clones.hpp>
#include <libtrain/models/roberta/detail/dropout.hpp>

namespace libtrain::models::detail {

/// Sixteen numbers at a time, for functions with LIBTRAIN_VECTOR_CLONES: one register of AVX-512, two of AVX2. They are
/// passed between inlined functions alone, so that it does not matter how (-Wno-psabi).
inline constexpr std::int64_t kLanes = kWidthMultiple;

using Lanes = float __attribute__((vector_size(4 * kLanes)));
using IntLanes = std::int32_t __attribute__((vector_size(4 * kLanes)));
using BitLanes = std::uint32_t __attribute__((vector_size(4 * kLanes)));
using HalfBitLanes = std::uint16_t __attribute__((vector_size(2 * kLanes)));

LIBTRAIN_INLINED Lanes lanes_of(float value) {
  return Lanes{} + value;
}

LIBTRAIN_INLINED Lanes load(const float* values) {
  Lanes lanes;
  std::memcpy(&lanes, values, sizeof lanes);
  return lanes;
}

LIBTRAIN_INLINED Lanes load(const c10::BFloat16* values) {
  HalfBitLanes bits;
  std::memcpy(&bits, values, sizeof bits);
  return reinterpret_cast<Lanes>(__builtin_convertvector(bits, BitLanes) << 16);
}

LIBTRAIN_INLINED void store(float* values, Lanes lanes) {
  std::memcpy(values, &lanes, sizeof lanes);
}

/// Rounds to the nearest, and to even; a NaN stays one.
LIBTRAIN_INLINED void store(c10::BFloat16* values, Lanes lanes) {
  const auto bits = reinterpret_cast<BitLanes>(lanes);
  const BitLanes rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const auto halves = __builtin_convertvector(lanes == lanes ? rounded : BitLanes{} + 0x7fc0u, HalfBitLanes);
  std::memcpy(values, &halves, sizeof halves);
}

LIBTRAIN_INLINED Lanes maximum(Lanes a, Lanes b) {
  return a > b ? a : b;
}

LIBTRAIN_INLINED float sum(Lanes lanes) {
  float parts[kLanes];
  store(parts, lanes);
  for (std::int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::int64_t k = 0; k < width; ++k) parts[k] += parts[k + width];
  }
  return parts[0];
}

LIBTRAIN_INLINED float maximum(Lanes lanes) {
  float parts[kLanes];
  store(parts, lanes);
  for (std::int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::int64_t k = 0; k < width; ++k) parts[k] = parts[k] > parts[k + width] ? parts[k] : parts[k + width];
  }
  return parts[0];
}

/// e^x within 2e-7 of its size, 0 below -87 and e^88 above 88. Cody and Waite's reduction to |r| <= ln(2) / 2, and
/// Taylor's series of e^r.
LIBTRAIN_INLINED Lanes exponential(Lanes x) {
  constexpr float kRound = 12582912;  // 1.5 * 2^23: what is added to it becomes a whole number
  const Lanes limited = x > 88.0f ? lanes_of(88) : x;
  const Lanes rounded = (limited * 1.44269504088896341f + kRound) - kRound;
  const Lanes r = (limited - rounded * 0.693359375f) + rounded * 2.12194440e-4f;
  Lanes sum = lanes_of(1.0f / 5040);
  sum = sum * r + 1.0f / 720;
  sum = sum * r + 1.0f / 120;
  sum = sum * r + 1.0f / 24;
  sum = sum * r + 1.0f / 6;
  sum = sum * r + 0.5f;
  sum = sum * r + 1.0f;
  sum = sum * r + 1.0f;
  const auto power = reinterpret_cast<Lanes>((__builtin_convertvector(rounded, IntLanes) + 127) << 23);
  return x > -87.0f ? sum * power : Lanes{};
}

/// The normal distribution's density and its integral from minus infinity to x, within 1e-7: M. Abramowitz and I.
/// Stegun, Handbook of Mathematical Functions, 7.1.26.
struct Normal {
  Lanes density;
  Lanes integral;
};

LIBTRAIN_INLINED Normal normal(Lanes x) {
  const Lanes size = x < 0.0f ? -x : x;
  const Lanes power = exponential(-0.5f * x * x);
  const Lanes t = 1.0f / (1.0f + (0.3275911f * 0.707106781186547524f) * size);
  Lanes tail = lanes_of(1.061405429f);
  tail = tail * t - 1.453152027f;
  tail = tail * t + 1.421413741f;
  tail = tail * t - 0.284496736f;
  tail = tail * t + 0.254829592f;
  tail = 0.5f * tail * t * power;
  return {0.398942280401432678f * power, x < 0.0f ? tail : 1.0f - tail};
}

/// ln(x) of positive, normal numbers within 1e-6: the exponent, and the series of the inverse hyperbolic tangent for a
/// mantissa of sqrt(1/2) to sqrt(2).
LIBTRAIN_INLINED Lanes logarithm(Lanes x) {
  const auto bits = reinterpret_cast<IntLanes>(x) - 0x3f3504f3;  // sqrt(1/2)
  const auto exponent = bits >> 23;
  const auto mantissa = reinterpret_cast<Lanes>(reinterpret_cast<IntLanes>(x) - (exponent << 23));
  const Lanes t = (mantissa - 1.0f) / (mantissa + 1.0f);
  const Lanes square = t * t;
  const Lanes series = 1.0f + square * (1.0f / 3 + square * (1.0f / 5 + square * (1.0f / 7 + square * (1.0f / 9))));
  return __builtin_convertvector(exponent, Lanes) * 0.693147180559945309f + 2.0f * t * series;
}

/// Sine and cosine of `angle` in [-pi, pi] within 1e-6, from those of half of it.
struct Direction {
  Lanes sine;
  Lanes cosine;
};

LIBTRAIN_INLINED Direction direction(Lanes angle) {
  const Lanes half = 0.5f * angle;
  const Lanes square = half * half;
  const auto series = [&](std::initializer_list<float> factors) __attribute__((always_inline)) {
    Lanes sum{};
    for (const float factor : factors) sum = sum * square + factor;
    return sum;
  };
  const Lanes sine = half * series({-1.0f / 39916800, 1.0f / 362880, -1.0f / 5040, 1.0f / 120, -1.0f / 6, 1.0f});
  const Lanes cosine = series({1.0f / 479001600, -1.0f / 3628800, 1.0f / 40320, -1.0f / 720, 1.0f / 24, -0.5f, 1.0f});
  return {2.0f * sine * cosine, 1.0f - 2.0f * sine * sine};
}

/// Random bits, a function of a key and a number: two rounds of multiplications and shifts, with the constants of C.
/// Wellons, "Prospecting for Hash Functions" (2018), and the key between them.
struct RandomBits {
  std::uint32_t first, second;

  explicit RandomBits(std::uint64_t key)
      : first(static_cast<std::uint32_t>(key)), second(static_cast<std::uint32_t>(key >> 32)) {}

  /// Of the numbers `number` to `number` + 15.
  LIBTRAIN_INLINED BitLanes at(std::uint32_t number) const {
    BitLanes bits = BitLanes{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} + (number + first);
    bits = (bits ^ (bits >> 16)) * 0x7feb352du;
    bits = (bits ^ (bits >> 15)) * 0x846ca68bu;
    bits = (bits ^ (bits >> 16)) + second;
    bits = (bits ^ (bits >> 16)) * 0x7feb352du;
    return bits ^ (bits >> 15);
  }
};

/// What a number that may be dropped is multiplied by: 0 with the probability, otherwise what keeps the mean.
class DropLanes {
 public:
  explicit DropLanes(const Dropout& dropout)
      : bits_(dropout.seed),
        below_(static_cast<std::uint32_t>(dropout.probability * 4294967296.0)),
        kept_(static_cast<float>(1 / (1 - dropout.probability))) {}

  LIBTRAIN_INLINED Lanes at(std::uint32_t number) const {
    return bits_.at(number) < below_ ? Lanes{} : lanes_of(kept_);
  }

 private:
  RandomBits bits_;
  std::uint32_t below_;
  float kept_;
};

}  // namespace libtrain::models::detail
