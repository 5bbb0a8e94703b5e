#pragma once

#include <functional>
#include <span>
#include <string>

namespace libtrain::detail {

/// Throws UsageError for `--name=` without a value, and for `--name` whose value would be a word that begins with two
/// dashes, as where a shell variable is empty: CLI11 alone takes the next word in both cases. `takes_value` is true for
/// the options that need one.
void require_option_values(std::span<const char* const> words,
                           const std::function<bool(const std::string& option)>& takes_value);

}  // namespace libtrain::detail
