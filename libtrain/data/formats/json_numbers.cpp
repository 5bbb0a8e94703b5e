#include <libtrain/data/formats/json_numbers.hpp>

#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <system_error>

#include <libtrain/data/formats/json_fault.hpp>
#include <libtrain/data/formats/json_space.hpp>

namespace libtrain::data::detail {

namespace {

constexpr std::array<double, 8> kPowersOfTen{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7};
constexpr std::uint64_t kEveryByte = 0x0101010101010101;
constexpr std::uint64_t kHighBits = 0x80 * kEveryByte;
constexpr std::uint64_t kZeros = 0x30 * kEveryByte;       // eight times '0'
constexpr std::uint64_t kBeyondNine = 0x76 * kEveryByte;  // added to a byte of 10 or more, sets its high bit

bool is_digit(char character) {
  return character >= '0' && character <= '9';
}

// The value of eight decimal digits, one a byte, the first in the lowest byte: neighbours are joined to pairs, pairs to
// fours, fours to eight (Johnny Lee's method, as in D. Lemire, "Number parsing at a gigabyte per second", 2021).
std::uint64_t value_of_digits(std::uint64_t digits) {
  constexpr std::uint64_t pairs = 0x000000ff000000ff;
  digits = digits * 10 + (digits >> 8);
  return ((digits & pairs) * 0x000f424000000064 + ((digits >> 16) & pairs) * 0x0000271000000001) >> 32;
}

// The lowest `bytes` bytes, below eight.
std::uint64_t low_bytes(int bytes) {
  return (std::uint64_t{1} << (8 * bytes)) - 1;
}

// A number such as 7, 510.66 or 0.5 that is over within eight bytes, without a branch on its length: lengths of
// coordinates are nearly random, and a branch that is mispredicted costs as much as the whole number. False, with
// nothing read, for any other number. The quotient of two exact doubles is correctly rounded.
bool read_short_number(const char*& at, double& number) {
  if constexpr (std::endian::native != std::endian::little) return false;
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  const std::uint64_t digits = word ^ kZeros;  // a digit becomes its value, anything else more than 9
  std::uint64_t others = ((digits + kBeyondNine) | digits) & kHighBits;
  if (others == 0) return false;
  const int whole = std::countr_zero(others) / 8;
  int length = whole;
  int decimals = 0;
  std::uint64_t all = digits & low_bytes(whole);
  if (at[whole] == '.') {
    others &= others - 1;
    if (others == 0) return false;
    length = std::countr_zero(others) / 8;
    decimals = length - whole - 1;
    if (decimals == 0) return false;
    all |= (digits >> 8) & low_bytes(length - 1) & ~low_bytes(whole);
  }
  const char terminator = at[length];
  const bool ends = terminator == ',' || terminator == ']';
  if (whole == 0 || !ends || (whole > 1 && *at == '0')) return false;
  const int count = whole + decimals;
  const std::uint64_t value = value_of_digits(all << (8 * (8 - count)));
  number = static_cast<double>(value) / kPowersOfTen[static_cast<std::size_t>(decimals)];
  at += length;
  return true;
}

}  // namespace

std::optional<std::size_t> json_number_length(std::string_view text) {
  std::size_t position = 0;
  const auto skip_digits = [&] {
    const std::size_t begin = position;
    while (position < text.size() && is_digit(text[position])) ++position;
    return position > begin;
  };
  const auto next_is = [&](char character) { return position < text.size() && text[position] == character; };
  if (next_is('-')) ++position;
  if (next_is('0')) {
    ++position;
  } else if (!skip_digits()) {
    return std::nullopt;
  }
  if (next_is('.')) {
    ++position;
    if (!skip_digits()) return std::nullopt;
  }
  if (next_is('e') || next_is('E')) {
    ++position;
    if (next_is('+') || next_is('-')) ++position;
    if (!skip_digits()) return std::nullopt;
  }
  return position;
}

const char* read_json_number(const char* at, const char* end, double& number) {
  if (at < end && read_short_number(at, number)) return at;
  const auto length = json_number_length({at, static_cast<std::size_t>(end - at)});
  if (!length) throw data_fault("a number", at);
  const auto [stop, error] = std::from_chars(at, at + *length, number);
  if (error != std::errc{} || stop != at + *length) {
    throw data_fault("a number within double's range", at);
  }
  return stop;
}

const char* append_json_numbers(const char* at, const char* end, std::vector<double>& numbers) {
  const auto is = [&](char character) { return at < end && *at == character; };
  if (!is('[')) throw data_fault("an array of numbers", at);
  at = skip_json_space(at + 1, end);
  if (is(']')) return at + 1;
  for (;;) {
    double number = 0;
    at = skip_json_space(read_json_number(at, end, number), end);
    numbers.push_back(number);
    if (is(']')) return at + 1;
    if (!is(',')) throw data_fault("',' or ']' behind a number", at);
    at = skip_json_space(at + 1, end);
  }
}

}  // namespace libtrain::data::detail
