#include <libtrain/data/formats/detail/json.hpp>

#include <cstddef>
#include <span>
#include <utility>

#include <libtrain/base/error.hpp>

namespace libtrain::data::detail {

namespace {

namespace ondemand = simdjson::ondemand;

JsonFault wrong_value(ondemand::value& value, const std::string& expected, std::string_view name) {
  return {json_begin(value), text(expected, " for '", name, "'")};
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

std::size_t find_invalid_utf8(std::string_view text) {
  int missing = 0;  // bytes that the character still needs
  unsigned lowest = 0x80;
  unsigned highest = 0xbf;  // of the next one of them
  for (std::size_t position = 0; position < text.size(); ++position) {
    const unsigned byte = static_cast<unsigned char>(text[position]);
    if (missing > 0) {
      if (byte < lowest || byte > highest) return position;
      --missing;
      lowest = 0x80;
      highest = 0xbf;
    } else if (byte >= 0x80) {
      if (byte < 0xc2 || byte > 0xf4) return position;
      missing = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
      if (byte == 0xe0) lowest = 0xa0;
      if (byte == 0xed) highest = 0x9f;
      if (byte == 0xf0) lowest = 0x90;
      if (byte == 0xf4) highest = 0x8f;
    }
  }
  return text.size();
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

simdjson::padded_string read_json_text(const File& file, std::uint64_t begin, std::uint64_t length) {
  simdjson::padded_string json{static_cast<std::size_t>(length)};
  if (json.data() == nullptr) {
    throw EnvironmentError(text("File '", file.name(), "': not enough memory for its ", length, " bytes of JSON."));
  }
  file.read_at(begin, std::as_writable_bytes(std::span{json.data(), json.size()}));
  return json;
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
    throw JsonFault{begin, text("an integer from ", minimum, " to ", maximum, " for '", name, "'")};
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

std::string json_text(ondemand::value& value, std::string_view name) {
  const char* const begin = json_begin(value);
  if (*begin == '"') return std::string{json_string(value, name)};
  if (*begin == 't' || *begin == 'f') return json_flag(value, name) ? "true" : "false";
  const std::string_view token = value.raw_json_token();
  if (double number = 0; value.get_double().get(number) != simdjson::SUCCESS) {
    throw JsonFault{begin, text("a string, a number, true or false for '", name, "'")};
  }
  return std::string{token.substr(0, token.find_last_not_of(kJsonSpace) + 1)};
}

ondemand::object json_object(ondemand::value& value, std::string_view name) {
  ondemand::object object;
  if (value.get_object().get(object) != simdjson::SUCCESS) throw wrong_value(value, "an object", name);
  return object;
}

ondemand::array json_array(ondemand::value& value, std::string_view name) {
  ondemand::array array;
  if (value.get_array().get(array) != simdjson::SUCCESS) throw wrong_value(value, "an array", name);
  return array;
}

std::string_view json_key(ondemand::field& field) {
  const char* const raw = field.key().raw();
  std::size_t length = 0;
  while (raw[length] != '"' && raw[length] != '\\') ++length;
  if (raw[length] == '"') return {raw, length};
  std::string_view key;
  if (field.unescaped_key().get(key) != simdjson::SUCCESS) {
    throw JsonFault{raw, "a key whose escapes are valid"};
  }
  return key;
}

JsonFault structural_fault(simdjson::error_code error, std::string_view json) {
  switch (error) {
    case simdjson::UTF8_ERROR:
      return {.at = json.data() + find_invalid_utf8(json), .expected = "UTF-8"};
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
