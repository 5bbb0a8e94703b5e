#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <simdjson.h>

namespace libtrain::data::detail {

/// JSON's white space (RFC 8259, section 2).
inline constexpr std::string_view kJsonSpace = " \t\r\n";

inline bool is_json_space(char character) {
  return character == ' ' || character == '\n' || character == '\r' || character == '\t';
}

/// The first place from `at` on, before `end`, that is not white space; `end` where there is none.
inline const char* skip_json_space(const char* at, const char* end) {
  while (at < end && is_json_space(*at)) ++at;
  return at;
}

/// What is wrong with JSON text. Thrown by parts that do not know which file the text belongs to, and turned into an
/// EnvironmentError by those that do.
struct JsonFault {
  enum class Kind {
    syntax,  ///< may be cured by reading on, where the text is the beginning of a longer one
    data,    ///< stays wrong whatever follows
  };
  Kind kind = Kind::syntax;
  const char* at = nullptr;   ///< where in the text; null where only the parser can say
  std::string expected = {};  ///< completes "expected ...": an integer for 'id'
};

/// A fault of Kind::data.
JsonFault data_fault(std::string expected, const char* at = nullptr);

/// The beginning of `text` in quotes, fit for a message: at most 24 printable characters; `end` where there is none.
std::string json_excerpt(std::string_view text, std::string_view end);

/// Reads the JSON number that begins at `at` as the double nearest to it, the same that Python and strtod give, and
/// returns where it ends. Throws JsonFault for what is not a number of JSON's grammar (RFC 8259) and for one beyond
/// double's range. Eight bytes from any position up to `end` on must be readable.
const char* read_json_number(const char* at, const char* end, double& number);

/// Appends the numbers of the JSON array that begins at `at` and returns where it ends. Throws JsonFault of Kind::data,
/// having appended some, for anything that is not an array of numbers. As many bytes behind `end` must be readable.
const char* append_json_numbers(const char* at, const char* end, std::vector<double>& numbers);

/// Where the number of JSON's grammar that `text` begins with ends; nothing where it begins with none.
std::optional<std::size_t> json_number_length(std::string_view text);

/// What reads values of simdjson's on-demand documents. Each value may be read once; `name` is its key, for the message
/// of the JsonFault (Kind::data) that all of them throw for another type.
std::int64_t json_integer(simdjson::ondemand::value& value, std::string_view name);

/// The same, from `minimum` to `maximum`.
std::int64_t json_integer(simdjson::ondemand::value& value, std::string_view name, std::int64_t minimum,
                          std::int64_t maximum);

double json_number(simdjson::ondemand::value& value, std::string_view name);

/// 0, 1, false or true.
bool json_flag(simdjson::ondemand::value& value, std::string_view name);

/// Lives until the parser's next document.
std::string_view json_string(simdjson::ondemand::value& value, std::string_view name);

/// An array as it stands in the text, from '[' to ']' or beyond where brackets do not match: its inside is not checked.
std::string_view json_array_text(simdjson::ondemand::value& value, std::string_view name);

simdjson::ondemand::object json_object(simdjson::ondemand::value& value, std::string_view name);

/// Where the value begins in the text.
inline const char* json_begin(simdjson::ondemand::value& value) {
  return value.raw_json_token().data();
}

/// The key of a field, with escapes resolved. Called once for a field, before its value is read.
std::string_view json_key(simdjson::ondemand::field& field);

/// What simdjson's first stage found in `text`, at the very place. Throws EnvironmentError for errors that have nothing
/// to do with the text, such as memory.
JsonFault structural_fault(simdjson::error_code error, std::string_view text);

/// Where a document stands, for faults whose place is not known.
const char* json_location(simdjson::ondemand::document& document);

/// Calls visit(key, value) for the fields of an object. Throws JsonFault of Kind::syntax where it is not well formed.
template <typename Visit>
void for_each_json_field(simdjson::ondemand::object& object, const Visit& visit) {
  for (auto entry : object) {
    if (entry.error() != simdjson::SUCCESS) throw JsonFault{.expected = "'\"key\": value' pairs with commas between"};
    simdjson::ondemand::field& field = entry.value_unsafe();
    const std::string_view key = json_key(field);
    visit(key, field.value());
  }
}

}  // namespace libtrain::data::detail
