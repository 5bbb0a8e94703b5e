#pragma once

#include <cstdint>
#include <string_view>

#include <simdjson.h>

#include <libtrain/data/formats/json_fault.hpp>

namespace libtrain::data::detail {

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
