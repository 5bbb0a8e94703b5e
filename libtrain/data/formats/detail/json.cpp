#include <libtrain/data/formats/detail/json.hpp>

#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/detail/file_buffer.hpp>
#include <libtrain/data/formats/text_table.hpp>

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

namespace ondemand = simdjson::ondemand;

static_assert(PaddedBuffer::kPadding >= simdjson::SIMDJSON_PADDING);

JsonFault wrong_value(ondemand::value& value, const std::string& expected, std::string_view name) {
  return data_fault(text(expected, " for '", name, "'"), json_begin(value));
}

// The first byte of a string that is not closed, or the first control character within a string.
const char* find_in_strings(std::string_view json, simdjson::error_code error) {
  const char* opening = nullptr;
  for (std::size_t position = 0; position < json.size(); ++position) {
    const char character = json[position];
    if (character == '"') {
      opening = opening == nullptr ? json.data() + position : nullptr;
    } else if (opening != nullptr && character == '\\') {
      ++position;
    } else if (opening != nullptr && static_cast<unsigned char>(character) < ' ' &&
               error == simdjson::UNESCAPED_CHARS) {
      return json.data() + position;
    }
  }
  return opening;
}

}  // namespace

JsonFault data_fault(std::string expected, const char* at) {
  return {.kind = JsonFault::Kind::data, .at = at, .expected = std::move(expected)};
}

std::string json_excerpt(std::string_view text, std::string_view end) {
  constexpr std::size_t longest = 24;
  if (text.empty()) return std::string{end};
  std::string excerpt = "'";
  for (const char character : text.substr(0, longest)) {
    const bool printable = character >= ' ' && character <= '~';
    excerpt += printable ? character : '?';
  }
  excerpt += text.size() > longest ? "'..." : "'";
  return excerpt;
}

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

std::int64_t json_integer(ondemand::value& value, std::string_view name) {
  std::int64_t number = 0;
  if (value.get_int64().get(number) != simdjson::SUCCESS) throw wrong_value(value, "an integer", name);
  return number;
}

std::int64_t json_integer(ondemand::value& value, std::string_view name, std::int64_t minimum, std::int64_t maximum) {
  const char* const begin = json_begin(value);
  const std::int64_t number = json_integer(value, name);
  if (number < minimum || number > maximum) {
    throw data_fault(text("an integer from ", minimum, " to ", maximum, " for '", name, "'"), begin);
  }
  return number;
}

double json_number(ondemand::value& value, std::string_view name) {
  double number = 0;
  if (value.get_double().get(number) != simdjson::SUCCESS) throw wrong_value(value, "a number", name);
  return number;
}

bool json_flag(ondemand::value& value, std::string_view name) {
  bool flag = false;
  if (value.get_bool().get(flag) == simdjson::SUCCESS) return flag;
  std::int64_t number = 0;
  if (value.get_int64().get(number) != simdjson::SUCCESS || number < 0 || number > 1) {
    throw wrong_value(value, "0 or 1", name);
  }
  return number == 1;
}

std::string_view json_string(ondemand::value& value, std::string_view name) {
  std::string_view string;
  if (value.get_string().get(string) != simdjson::SUCCESS) throw wrong_value(value, "a string", name);
  return string;
}

std::string_view json_array_text(ondemand::value& value, std::string_view name) {
  ondemand::array array;
  if (value.get_array().get(array) != simdjson::SUCCESS) throw wrong_value(value, "an array", name);
  std::string_view json;
  if (array.raw_json().get(json) != simdjson::SUCCESS) {
    throw JsonFault{.expected = text("the end of the array '", name, "'")};
  }
  return json;
}

ondemand::object json_object(ondemand::value& value, std::string_view name) {
  ondemand::object object;
  if (value.get_object().get(object) != simdjson::SUCCESS) throw wrong_value(value, "an object", name);
  return object;
}

std::string_view json_key(ondemand::field& field) {
  const char* const raw = field.key().raw();
  std::size_t length = 0;
  while (raw[length] != '"' && raw[length] != '\\') ++length;
  if (raw[length] == '"') return {raw, length};
  std::string_view key;
  if (field.unescaped_key().get(key) != simdjson::SUCCESS) {
    throw data_fault("a key whose escapes are valid", raw);
  }
  return key;
}

JsonFault structural_fault(simdjson::error_code error, std::string_view json) {
  switch (error) {
    case simdjson::UTF8_ERROR: {
      const auto position = Utf8Check{}.add(json);
      return {.at = json.data() + position.value_or(json.size()), .expected = "UTF-8"};
    }
    case simdjson::UNESCAPED_CHARS:
      return {.at = find_in_strings(json, error), .expected = "no control character within a string"};
    case simdjson::UNCLOSED_STRING:
      return {.at = find_in_strings(json, error), .expected = "a string that is closed"};
    case simdjson::EMPTY:
      return {.at = json.data(), .expected = "a JSON value"};
    default:
      throw EnvironmentError(
          text("JSON text of ", json.size(), " bytes cannot be parsed: ", simdjson::error_message(error), "."));
  }
}

const char* json_location(ondemand::document& document) {
  const char* location = nullptr;
  if (document.current_location().get(location) != simdjson::SUCCESS) return nullptr;
  return location;
}

}  // namespace libtrain::data::detail
