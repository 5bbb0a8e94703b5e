#include <libtrain/base/detail/crc32c.hpp>

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#define LIBTRAIN_CRC_INSTRUCTIONS __attribute__((target("sse4.2,crc32")))
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#define LIBTRAIN_CRC_INSTRUCTIONS __attribute__((target("+crc")))
#endif

namespace libtrain::detail {

namespace {

static_assert(std::endian::native == std::endian::little, "words are loaded in memory order");

constexpr std::uint32_t kReflectedPolynomial = 0x82f63b78;

// An instruction has a latency of 3 cycles, but one can start in every cycle: three stretches of this many bytes are
// processed in turn.
constexpr std::size_t kStretch = 1024;

using Table = std::array<std::uint32_t, 256>;

// [zeros][byte]: the register after `byte` and `zeros` zero bytes.
constexpr std::array<Table, 8> make_byte_tables() {
  std::array<Table, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t state = byte;
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? kReflectedPolynomial : 0);
    tables[0][byte] = state;
  }
  for (std::size_t zeros = 1; zeros < 8; ++zeros) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t state = tables[zeros - 1][byte];
      tables[zeros][byte] = (state >> 8) ^ tables[0][state & 0xff];
    }
  }
  return tables;
}

constexpr auto kByteTables = make_byte_tables();

constexpr std::uint32_t add_byte_by_table(std::uint32_t state, std::uint8_t byte) {
  return (state >> 8) ^ kByteTables[0][(state ^ byte) & 0xff];
}

std::uint64_t load_word(const char* from) {
  std::uint64_t word = 0;
  std::memcpy(&word, from, sizeof word);
  return word;
}

// The product of two polynomials modulo the CRC's; the highest bit is the coefficient of x^0.
std::uint32_t multiply_polynomials(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = std::uint32_t{1} << 31; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? kReflectedPolynomial : 0);
  }
  return product;
}

#ifdef LIBTRAIN_CRC_INSTRUCTIONS

// [part][byte]: the register after a stretch of zeros, from a register with `byte` in its byte number `part`. The
// register is linear in its bits, so each bit is passed over the stretch once.
constexpr std::array<Table, 4> make_stretch_tables() {
  std::array<std::uint32_t, 32> images{};
  for (std::size_t bit = 0; bit < 32; ++bit) {
    std::uint32_t state = std::uint32_t{1} << bit;
    for (std::size_t i = 0; i < kStretch; ++i) state = add_byte_by_table(state, 0);
    images[bit] = state;
  }
  std::array<Table, 4> tables{};
  for (std::size_t part = 0; part < 4; ++part) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      for (std::size_t bit = 0; bit < 8; ++bit) {
        if ((byte >> bit & 1) != 0) tables[part][byte] ^= images[8 * part + bit];
      }
    }
  }
  return tables;
}

constexpr auto kStretchTables = make_stretch_tables();

std::uint32_t pass_stretch(std::uint32_t state) {
  const auto& tables = kStretchTables;
  return tables[0][state & 0xff] ^ tables[1][state >> 8 & 0xff] ^ tables[2][state >> 16 & 0xff] ^
         tables[3][state >> 24];
}

#if defined(__x86_64__)

// The width of the instruction, with zeros in the upper half, which avoids conversions.
using Register = std::uint64_t;

LIBTRAIN_CRC_INSTRUCTIONS inline Register add_word(Register state, std::uint64_t word) {
  return _mm_crc32_u64(state, word);
}

LIBTRAIN_CRC_INSTRUCTIONS inline Register add_byte(Register state, std::uint8_t byte) {
  return _mm_crc32_u8(static_cast<std::uint32_t>(state), byte);
}

#else

using Register = std::uint32_t;

LIBTRAIN_CRC_INSTRUCTIONS inline Register add_word(Register state, std::uint64_t word) {
  return __crc32cd(state, word);
}

LIBTRAIN_CRC_INSTRUCTIONS inline Register add_byte(Register state, std::uint8_t byte) {
  return __crc32cb(state, byte);
}

#endif

LIBTRAIN_CRC_INSTRUCTIONS std::uint32_t run_instructions(std::uint32_t crc, const char* from, std::size_t count) {
  const std::uint32_t inverted = ~crc;
  Register state = inverted;
  for (; count >= 3 * kStretch; from += 3 * kStretch, count -= 3 * kStretch) {
    Register second = 0;
    Register third = 0;
    for (std::size_t i = 0; i < kStretch; i += 8) {
      state = add_word(state, load_word(from + i));
      second = add_word(second, load_word(from + kStretch + i));
      third = add_word(third, load_word(from + 2 * kStretch + i));
    }
    const std::uint32_t two = pass_stretch(static_cast<std::uint32_t>(state)) ^ static_cast<std::uint32_t>(second);
    state = pass_stretch(two) ^ static_cast<std::uint32_t>(third);
  }
  for (; count >= 8; from += 8, count -= 8) state = add_word(state, load_word(from));
  for (; count > 0; ++from, --count) state = add_byte(state, static_cast<std::uint8_t>(*from));
  return ~static_cast<std::uint32_t>(state);
}

#endif

}  // namespace

std::uint32_t extend_crc32c_by_tables(std::uint32_t crc, std::string_view bytes) noexcept {
  const auto& tables = kByteTables;
  std::uint32_t state = ~crc;
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    const std::uint64_t word = load_word(bytes.data()) ^ state;
    state = tables[7][word & 0xff] ^ tables[6][word >> 8 & 0xff] ^ tables[5][word >> 16 & 0xff] ^
            tables[4][word >> 24 & 0xff] ^ tables[3][word >> 32 & 0xff] ^ tables[2][word >> 40 & 0xff] ^
            tables[1][word >> 48 & 0xff] ^ tables[0][word >> 56];
  }
  for (const char byte : bytes) state = add_byte_by_table(state, static_cast<std::uint8_t>(byte));
  return ~state;
}

std::uint32_t extend_crc32c_by_instructions(std::uint32_t crc, std::string_view bytes) noexcept {
#ifdef LIBTRAIN_CRC_INSTRUCTIONS
  return run_instructions(crc, bytes.data(), bytes.size());
#else
  return extend_crc32c_by_tables(crc, bytes);
#endif
}

bool has_crc32c_instructions() noexcept {
#if defined(__x86_64__)
  return __builtin_cpu_supports("sse4.2") != 0;
#elif defined(__aarch64__)
  return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#else
  return false;
#endif
}

// The inversions of the register cancel out: `first` is shifted by the following bytes, that is multiplied by x^8 for
// each.
std::uint32_t combine_crc32c(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) noexcept {
  std::uint32_t power = std::uint32_t{1} << 23;  // x^8, then its squares
  for (; second_bytes != 0; second_bytes >>= 1) {
    if ((second_bytes & 1) != 0) first = multiply_polynomials(first, power);
    power = multiply_polynomials(power, power);
  }
  return first ^ second;
}

std::uint32_t extend_crc32c(std::uint32_t crc, std::string_view bytes) noexcept {
  using Extend = std::uint32_t (*)(std::uint32_t, std::string_view) noexcept;
  static const Extend extend = has_crc32c_folding()        ? &extend_crc32c_by_folding
                               : has_crc32c_instructions() ? &extend_crc32c_by_instructions
                                                           : &extend_crc32c_by_tables;
  return extend(crc, bytes);
}

std::uint32_t crc32c(std::string_view bytes) noexcept {
  return extend_crc32c(0, bytes);
}

}  // namespace libtrain::detail
