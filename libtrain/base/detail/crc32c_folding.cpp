#include <libtrain/base/detail/crc32c.hpp>

#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#define LIBTRAIN_CRC_FOLDING __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.2,crc32")))
#endif

// Folding: V. Gopal et al., Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction, Intel, 2009. A
// register of the message's bits is replaced by one with the same remainder n bits further on, where it is added to the
// message: its halves are multiplied without carries by powers of x modulo the polynomial. With bits reflected, the
// product of two 64-bit halves is off by one bit, and a constant in the lower half by 32.
//
// The processor multiplies and runs its instruction for CRC-32C in different units: the latter processes a third of the
// message at the same time, in three stretches after the folded part.

namespace libtrain::detail {

#ifdef LIBTRAIN_CRC_FOLDING

namespace {

constexpr std::size_t kVectorBytes = 64;
constexpr std::size_t kBlockBytes = 4 * kVectorBytes;

// Words of each stretch per folded block: as many as take the same time.
constexpr std::size_t kWords = 5;
constexpr std::size_t kStretchBytes = kWords * sizeof(std::uint64_t);
constexpr std::size_t kStepBytes = kBlockBytes + 3 * kStretchBytes;
// Below this number of steps, combining the parts costs more than the folding saves.
constexpr std::size_t kMinSteps = 4;

// x^exponent modulo the polynomial, reflected.
constexpr std::uint64_t power_of_x(int exponent) {
  std::uint32_t state = 0x80000000;
  for (int i = 0; i < exponent; ++i) state = (state >> 1) ^ ((state & 1) != 0 ? 0x82f63b78 : 0);
  return state;
}

// The factors of the two halves of 128 bits that move them on by some bits.
struct Step {
  std::uint64_t first;
  std::uint64_t second;
};

constexpr Step step_of(int bits) {
  return {power_of_x(bits + 64 - 33), power_of_x(bits - 33)};
}

constexpr Step kByLane = step_of(128);
constexpr Step kByVector = step_of(512);
constexpr Step kByBlock = step_of(2048);

LIBTRAIN_CRC_FOLDING inline __m512i load(const char* from) {
  return _mm512_loadu_si512(from);
}

LIBTRAIN_CRC_FOLDING inline __m512i constants(const Step& step) {
  const auto first = static_cast<long long>(step.first);
  const auto second = static_cast<long long>(step.second);
  return _mm512_set_epi64(second, first, second, first, second, first, second, first);
}

// Moves each lane of `from` on and adds it to that of `to`.
LIBTRAIN_CRC_FOLDING inline __m512i fold(__m512i from, __m512i step, __m512i to) {
  constexpr int kSumOfThree = 0x96;
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(from, step, 0x00),
                                   _mm512_clmulepi64_epi128(from, step, 0x11), to, kSumOfThree);
}

LIBTRAIN_CRC_FOLDING inline __m128i fold(__m128i from, __m128i to) {
  const __m128i step = _mm_set_epi64x(static_cast<long long>(kByLane.second), static_cast<long long>(kByLane.first));
  const __m128i sum = _mm_xor_si128(_mm_clmulepi64_si128(from, step, 0x00), _mm_clmulepi64_si128(from, step, 0x11));
  return _mm_xor_si128(sum, to);
}

// The remainder of a message of these 64 bytes, from a register of zero.
LIBTRAIN_CRC_FOLDING inline std::uint32_t remainder_of(__m512i vector) {
  alignas(kVectorBytes) __m128i lanes[4];
  _mm512_store_si512(lanes, vector);
  const __m128i lane = fold(fold(fold(lanes[0], lanes[1]), lanes[2]), lanes[3]);
  const auto first = static_cast<std::uint64_t>(_mm_cvtsi128_si64(lane));
  const auto second = static_cast<std::uint64_t>(_mm_extract_epi64(lane, 1));
  return static_cast<std::uint32_t>(_mm_crc32_u64(_mm_crc32_u64(0, first), second));
}

// Powers of x are stored 33 bits short: the product of two is then short by the same amount.
constexpr std::uint32_t kPastStretch = static_cast<std::uint32_t>(power_of_x(8 * kStretchBytes - 33));

// The product of two remainders, moved on by 33 bits, which compensates for the stored powers.
LIBTRAIN_CRC_FOLDING inline std::uint32_t multiply(std::uint32_t left, std::uint32_t right) {
  const __m128i product =
      _mm_clmulepi64_si128(_mm_cvtsi32_si128(static_cast<int>(left)), _mm_cvtsi32_si128(static_cast<int>(right)), 0x00);
  return static_cast<std::uint32_t>(_mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(product))));
}

// The factor that moves a remainder on by `count` times kStretchBytes; `count` is not 0. By squaring, from the highest
// bit down.
LIBTRAIN_CRC_FOLDING inline std::uint32_t past_stretches(std::size_t count) {
  std::uint32_t power = kPastStretch;
  for (int bit = static_cast<int>(std::bit_width(count)) - 2; bit >= 0; --bit) {
    power = multiply(power, power);
    if ((count >> bit & 1) != 0) power = multiply(power, kPastStretch);
  }
  return power;
}

// One of the stretches, with a register that starts at zero.
struct Stretch {
  const char* from;
  std::uint64_t state = 0;
};

LIBTRAIN_CRC_FOLDING inline void add_word(Stretch& stretch, std::size_t i) {
  std::uint64_t word = 0;
  std::memcpy(&word, stretch.from + i * sizeof word, sizeof word);
  stretch.state = _mm_crc32_u64(stretch.state, word);
}

// A word of each in turn, because an instruction has a latency of three cycles.
LIBTRAIN_CRC_FOLDING inline void add_words(Stretch& first, Stretch& second, Stretch& third) {
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kWords; ++i) {
    add_word(first, i);
    add_word(second, i);
    add_word(third, i);
  }
  for (Stretch* const stretch : {&first, &second, &third}) stretch->from += kStretchBytes;
}

// The checksum of steps * kStepBytes bytes; `steps` is not 0.
LIBTRAIN_CRC_FOLDING std::uint32_t run_folding(std::uint32_t crc, const char* from, std::size_t steps) {
  const std::size_t stretch_bytes = steps * kStretchBytes;
  Stretch first{from + steps * kBlockBytes};
  Stretch second{first.from + stretch_bytes};
  Stretch third{second.from + stretch_bytes};
  const __m512i start = _mm512_inserti32x4(_mm512_setzero_si512(), _mm_cvtsi32_si128(static_cast<int>(~crc)), 0);
  __m512i a = _mm512_xor_si512(load(from), start);
  __m512i b = load(from + kVectorBytes);
  __m512i c = load(from + 2 * kVectorBytes);
  __m512i d = load(from + 3 * kVectorBytes);
  add_words(first, second, third);
  const __m512i by_block = constants(kByBlock);
  for (std::size_t step = 1; step < steps; ++step) {
    from += kBlockBytes;
    a = fold(a, by_block, load(from));
    b = fold(b, by_block, load(from + kVectorBytes));
    c = fold(c, by_block, load(from + 2 * kVectorBytes));
    d = fold(d, by_block, load(from + 3 * kVectorBytes));
    add_words(first, second, third);
  }
  const __m512i by_vector = constants(kByVector);
  std::uint32_t state = remainder_of(fold(fold(fold(a, by_vector, b), by_vector, c), by_vector, d));
  const std::uint32_t past = past_stretches(steps);
  for (const Stretch* const stretch : {&first, &second, &third}) {
    state = multiply(state, past) ^ static_cast<std::uint32_t>(stretch->state);
  }
  return ~state;
}

}  // namespace

std::uint32_t extend_crc32c_by_folding(std::uint32_t crc, std::string_view bytes) noexcept {
  const std::size_t steps = bytes.size() / kStepBytes;
  if (steps < kMinSteps) return extend_crc32c_by_instructions(crc, bytes);
  crc = run_folding(crc, bytes.data(), steps);
  return extend_crc32c_by_instructions(crc, bytes.substr(steps * kStepBytes));
}

bool has_crc32c_folding() noexcept {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("vpclmulqdq") != 0 &&
         has_crc32c_instructions();
}

#else

std::uint32_t extend_crc32c_by_folding(std::uint32_t crc, std::string_view bytes) noexcept {
  return extend_crc32c_by_instructions(crc, bytes);
}

bool has_crc32c_folding() noexcept {
  return false;
}

#endif

}  // namespace libtrain::detail
