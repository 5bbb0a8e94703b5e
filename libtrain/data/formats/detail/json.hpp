#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <simdjson.h>

#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data::detail {

/// JSON's white space (RFC 8259, section 2).
inline constexpr std::string_view kJsonSpace = " \t\r\n";

/// What is wrong with JSON text. Thrown by parts that do not know which file the text belongs to, and turned into an
/// EnvironmentError by those that do.
struct JsonFault {
  const char* at = nullptr;   ///< where in the text; null: where the parser stands
  std::string expected = {};  ///< completes "expected ...": an integer for 'id'
};

/// The beginning of `text` in quotes, fit for a message: at most 24 printable characters; `end` where there is none.
std::string json_excerpt(std::string_view text, std::string_view end);

/// Bytes `begin` to `begin + length` of a file, with the padding that simdjson reads. Throws as File::read_at, and
/// EnvironmentError where there is not the memory.
simdjson::padded_string read_json_text(const File& file, std::uint64_t begin, std::uint64_t length);

/// What reads values of simdjson's on-demand documents. Each value may be read once; `name` is its key, for the message
/// of the JsonFault that all of them throw for another type.
std::int64_t json_integer(simdjson::ondemand::value& value, std::string_view name);

/// The same, from `minimum` to `maximum`.
std::int64_t json_integer(simdjson::ondemand::value& value, std::string_view name, std::int64_t minimum,
                          std::int64_t maximum);

/// The double nearest to a number, the same that Python and strtod give.
double json_number(simdjson::ondemand::value& value, std::string_view name);

/// 0, 1, false or true.
bool json_flag(simdjson::ondemand::value& value, std::string_view name);

/// Lives until the parser's next document.
std::string_view json_string(simdjson::ondemand::value& value, std::string_view name);

simdjson::ondemand::object json_object(simdjson::ondemand::value& value, std::string_view name);

simdjson::ondemand::array json_array(simdjson::ondemand::value& value, std::string_view name);

/// Where the value begins in the text.
inline const char* json_begin(simdjson::ondemand::value& value) {
  return value.raw_json_token().data();
}

/// The key of a field, with escapes resolved. Called once for a field, before its value is read.
std::string_view json_key(simdjson::ondemand::field& field);

/// Calls visit(key, value) for the fields of an object. Throws JsonFault where it is not well formed.
template <typename Visit>
void for_each_json_field(simdjson::ondemand::object& object, const Visit& visit) {
  for (auto entry : object) {
    if (entry.error() != simdjson::SUCCESS) throw JsonFault{.expected = "'\"key\": value' pairs with commas between"};
    simdjson::ondemand::field& field = entry.value_unsafe();
    const std::string_view key = json_key(field);
    visit(key, field.value());
  }
}

/// Calls visit(value) for the elements of the array `name`. Throws JsonFault where it is not well formed.
template <typename Visit>
void for_each_json_element(simdjson::ondemand::array array, std::string_view name, const Visit& visit) {
  for (auto element : array) {
    if (element.error() != simdjson::SUCCESS) throw JsonFault{.expected = text("',' or ']' in '", name, "'")};
    simdjson::ondemand::value each = element.value_unsafe();
    visit(each);
  }
}

/// What simdjson's first stage found in `text`, at the very place. Throws EnvironmentError for errors that have nothing
/// to do with the text, such as memory.
JsonFault structural_fault(simdjson::error_code error, std::string_view text);

/// Where the parser stands, for faults whose place is not known; null behind the document's end.
const char* json_location(simdjson::ondemand::document& document);

/// Parses `json`, an object or an array, and calls read(document). What `read` leaves out is checked for no more than
/// quotes that close and for as many closing brackets as opening ones. Throws JsonFault, with its place.
template <typename Read>
void parse_json(const simdjson::padded_string& json, const Read& read) {
  simdjson::ondemand::parser parser;
  simdjson::ondemand::document document;
  if (const auto error = parser.iterate(json).get(document); error != simdjson::SUCCESS) {
    throw structural_fault(error, json);
  }
  try {
    read(document);
    if (const char* behind = json_location(document); behind != nullptr) throw JsonFault{behind, "nothing behind it"};
  } catch (JsonFault& fault) {
    if (fault.at == nullptr) fault.at = json_location(document);
    if (fault.at == nullptr) fault.at = json.data() + json.size();
    throw;
  }
}

}  // namespace libtrain::data::detail
