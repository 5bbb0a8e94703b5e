#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace libtrain::data::detail {

/// Reads the JSON number that begins at `at` as the double nearest to it, the same that Python and strtod give, and
/// returns where it ends. Throws JsonFault for what is not a number of JSON's grammar (RFC 8259) and for one beyond
/// double's range. Eight bytes from any position up to `end` on must be readable.
const char* read_json_number(const char* at, const char* end, double& number);

/// Appends the numbers of the JSON array that begins at `at` and returns where it ends. Throws JsonFault of Kind::data,
/// having appended some, for anything that is not an array of numbers. As many bytes behind `end` must be readable.
const char* append_json_numbers(const char* at, const char* end, std::vector<double>& numbers);

/// Where the number of JSON's grammar that `text` begins with ends; nothing where it begins with none.
std::optional<std::size_t> json_number_length(std::string_view text);

}  // namespace libtrain::data::detail
