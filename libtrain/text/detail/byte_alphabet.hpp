#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace libtrain::detail {

/// How vocab.json and merges.txt spell bytes (GPT-2's encoder.py, bytes_to_unicode): printable characters of Latin-1 as
/// themselves, all others, such as the space, as U+0100 and following in the order of bytes.
const std::string& letter_of_byte(std::uint8_t byte);

/// Bytes as letters.
std::string spell_bytes(std::string_view bytes);

/// The bytes that a token spells; nothing if one of its characters is no letter of a byte.
std::optional<std::string> bytes_of_token(std::string_view token);

}  // namespace libtrain::detail
