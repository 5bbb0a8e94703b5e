#pragma once

#include <string>
#include <string_view>

namespace libtrain::detail {

/// Makes `message` safe to show on a terminal, even if it contains names, arguments or text of other libraries: control
/// characters except line ends and tabs become \\x1b, and of a message of more than about 4000 bytes only the beginning
/// and the end remain. Printable text is unchanged. Every libtrain::Error applies it.
std::string printable(std::string_view message);

}  // namespace libtrain::detail
