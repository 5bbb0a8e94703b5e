#include <libtrain/text/detail/byte_alphabet.hpp>

#include <array>
#include <cstddef>

namespace libtrain::detail {

namespace {

constexpr unsigned kFirstOther = 0x100;
constexpr std::size_t kCodes = 0x144;  // 256 + 68 bytes that have no printable character

struct Alphabet {
  std::array<std::string, 256> letters = {};
  std::array<int, kCodes> bytes = {};  // by code point; -1: no letter
};

bool is_printable_latin1(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
}

std::string utf8_of(unsigned code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0U | (code >> 6U)), static_cast<char>(0x80U | (code & 0x3fU))};
}

const Alphabet& alphabet() {
  static const Alphabet made = [] {
    Alphabet alphabet;
    alphabet.bytes.fill(-1);
    unsigned other = kFirstOther;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const unsigned code = is_printable_latin1(byte) ? byte : other++;
      alphabet.letters[byte] = utf8_of(code);
      alphabet.bytes[code] = static_cast<int>(byte);
    }
    return alphabet;
  }();
  return made;
}

}  // namespace

const std::string& letter_of_byte(std::uint8_t byte) {
  return alphabet().letters[byte];
}

std::string spell_bytes(std::string_view bytes) {
  std::string token;
  for (const char byte : bytes) token += letter_of_byte(static_cast<std::uint8_t>(byte));
  return token;
}

std::optional<std::string> bytes_of_token(std::string_view token) {
  std::string bytes;
  for (std::size_t at = 0; at < token.size(); ++at) {
    unsigned code = static_cast<unsigned char>(token[at]);
    if (code >= 0x80) {
      if (code >= 0xe0 || at + 1 == token.size()) return std::nullopt;
      code = ((code & 0x1fU) << 6U) | (static_cast<unsigned char>(token[++at]) & 0x3fU);
    }
    if (code >= kCodes || alphabet().bytes[code] < 0) return std::nullopt;
    bytes += static_cast<char>(alphabet().bytes[code]);
  }
  return bytes;
}

}  // namespace libtrain::detail
