#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include <libtrain/data/formats/json_window.hpp>

namespace libtrain::data::detail {

/// Nested deeper than this, JSON is refused.
inline constexpr int kDeepestJson = 1024;

/// Returns the offset behind the JSON value at `offset`. What is skipped is checked for no more than quotes that close
/// and for as many closing brackets as opening ones. Throws EnvironmentError.
std::uint64_t skip_json_value(JsonWindow& window, std::uint64_t offset);

/// Reads the value that begins at `offset`, if it wants to, and returns the offset behind it.
using JsonMemberReader = std::function<std::uint64_t(std::string_view key, std::uint64_t offset)>;

/// Calls read(key, offset of its value) for the members of the object at `offset`, and returns the offset behind it.
/// Keys are as they stand in the file, escapes unresolved. Throws EnvironmentError where the object is not well formed.
std::uint64_t walk_json_object(JsonWindow& window, std::uint64_t offset, const JsonMemberReader& read);

/// Throws EnvironmentError unless there is only white space from `offset` on.
void expect_json_end(JsonWindow& window, std::uint64_t offset);

}  // namespace libtrain::data::detail
