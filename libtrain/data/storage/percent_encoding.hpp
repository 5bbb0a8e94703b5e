#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace libtrain::data::detail {

/// `encoded` with every %XX replaced by the byte that it stands for (RFC 3986, section 2.1); nothing where a '%' is not
/// followed by two hexadecimal digits. A '+' stays a '+'.
std::optional<std::string> percent_decode(std::string_view encoded);

/// `plain` with every byte but letters, digits and "-._~" as %XX with capital digits.
std::string percent_encode(std::string_view plain);

}  // namespace libtrain::data::detail
