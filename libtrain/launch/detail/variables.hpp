#pragma once

#include <span>
#include <string_view>

namespace libtrain::detail {

/// The names of the variables that decide how a job is launched and how its ranks communicate. None of them should
/// contain a secret: diagnostics print these variables, redacted, and no others.
std::span<const std::string_view> launch_variables();

}  // namespace libtrain::detail
