#pragma once

#include <string>
#include <string_view>

namespace libtrain::detail {

/// `message` as it may be shown on a terminal, whatever names, arguments and foreign libraries put into it: control
/// characters but line ends and tabs as \\x1b, and of more than some 4000 bytes the beginning and the end. Applied to
/// what is printable it changes nothing. Every libtrain::Error applies it.
std::string printable(std::string_view message);

}  // namespace libtrain::detail
