#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <simdjson.h>

#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data::detail {

/// JSON's white space (RFC 8259, section 2).
inline constexpr std::string_view kJsonSpace = " \t\r\n";

/// A fault of JSON text. Thrown by functions that do not know the file of the text, and turned into an EnvironmentError
/// by functions that do.
struct JsonFault {
  const char* at = nullptr;   ///< the place in the text; null for the position of the parser
  std::string expected = {};  ///< completes "expected ...": an integer for 'id'
  std::string record = {};    ///< the record of the file that has the fault, such as "annotation 5", if that is known
};

/// The position of the first byte of `text` that is not valid UTF-8: no overlong forms, no surrogates, nothing above
/// U+10FFFF (The Unicode Standard 15.0, table 3-7). text.size() if there is none or the last character is cut off.
std::size_t find_invalid_utf8(std::string_view text);

/// The beginning of `text` in quotes for a message: at most 24 characters, printable; `end` if `text` is empty.
std::string json_excerpt(std::string_view text, std::string_view end);

/// Bytes `begin` to `begin + length` of a file, with the padding that simdjson reads. Throws as File::read_at, and
/// EnvironmentError if there is not enough memory.
simdjson::padded_string read_json_text(const File& file, std::uint64_t begin, std::uint64_t length);

/// The following functions read values of simdjson's on-demand documents, and throw JsonFault for another type. Each
/// value may be read once; `name` is its key, for the message.
std::int64_t json_integer(simdjson::ondemand::value& value, std::string_view name);

/// The same, from `minimum` to `maximum`.
std::int64_t json_integer(simdjson::ondemand::value& value, std::string_view name, std::int64_t minimum,
                          std::int64_t maximum);

/// The double nearest to a number, as in Python and strtod.
double json_number(simdjson::ondemand::value& value, std::string_view name);

/// 0, 1, false or true.
bool json_flag(simdjson::ondemand::value& value, std::string_view name);

/// Valid until the parser's next document.
std::string_view json_string(simdjson::ondemand::value& value, std::string_view name);

/// A string with its escapes resolved, a number as it is written, or "true" or "false".
std::string json_text(simdjson::ondemand::value& value, std::string_view name);

simdjson::ondemand::object json_object(simdjson::ondemand::value& value, std::string_view name);

simdjson::ondemand::array json_array(simdjson::ondemand::value& value, std::string_view name);

/// The beginning of the value in the text.
inline const char* json_begin(simdjson::ondemand::value& value) {
  return value.raw_json_token().data();
}

/// The key of a field, with escapes resolved. Call it once per field, before its value is read.
std::string_view json_key(simdjson::ondemand::field& field);

/// Calls visit(key, value) for the fields of an object. Throws JsonFault if it is not well formed.
template <typename Visit>
void for_each_json_field(simdjson::ondemand::object& object, const Visit& visit) {
  for (auto entry : object) {
    if (entry.error() != simdjson::SUCCESS) throw JsonFault{.expected = "'\"key\": value' pairs with commas between"};
    simdjson::ondemand::field& field = entry.value_unsafe();
    const std::string_view key = json_key(field);
    visit(key, field.value());
  }
}

/// Calls visit(value) for the elements of the array `name`. Throws JsonFault if it is not well formed.
template <typename Visit>
void for_each_json_element(simdjson::ondemand::array array, std::string_view name, const Visit& visit) {
  for (auto element : array) {
    if (element.error() != simdjson::SUCCESS) throw JsonFault{.expected = text("',' or ']' in '", name, "'")};
    simdjson::ondemand::value each = element.value_unsafe();
    visit(each);
  }
}

/// The exact place of an error of simdjson's first stage in `text`. Throws EnvironmentError for errors that are not
/// about the text, such as missing memory.
JsonFault structural_fault(simdjson::error_code error, std::string_view text);

/// The position of the parser, for faults with an unknown place; null after the document's end.
const char* json_location(simdjson::ondemand::document& document);

/// Parses `json`, an object or an array, and calls read(document). Parts that `read` skips are checked only for closed
/// quotes and balanced brackets. Throws JsonFault, with its place.
template <typename Read>
void parse_json(const simdjson::padded_string& json, const Read& read) {
  simdjson::ondemand::parser parser;
  simdjson::ondemand::document document;
  if (const auto error = parser.iterate(json).get(document); error != simdjson::SUCCESS) {
    throw structural_fault(error, json);
  }
  try {
    read(document);
    if (const char* after = json_location(document); after != nullptr) throw JsonFault{after, "nothing after it"};
  } catch (JsonFault& fault) {
    if (fault.at == nullptr) fault.at = json_location(document);
    if (fault.at == nullptr) fault.at = json.data() + json.size();
    throw;
  }
}

}  // namespace libtrain::data::detail
