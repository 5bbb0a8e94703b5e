#include <libtrain/base/detail/printable.hpp>

#include <cstddef>
#include <cstdint>

#include <libtrain/base/detail/digits.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

constexpr std::size_t kBeginning = 3000;  // bytes
constexpr std::size_t kEnd = 1000;
constexpr std::size_t kMaxBytes = kBeginning + kEnd + 100;  // the note about the omission takes some bytes, too

unsigned byte_at(std::string_view message, std::size_t at) {
  return static_cast<unsigned char>(message[at]);
}

// Includes U+0080 to U+009F, which some terminals interpret as control characters in UTF-8.
bool is_control(std::string_view message, std::size_t at) {
  const auto byte = byte_at(message, at);
  if (byte == '\n' || byte == '\t') return false;
  if (byte < 0x20 || byte == 0x7f) return true;
  return byte >= 0x80 && byte < 0xa0 && at > 0 && byte_at(message, at - 1) == 0xc2;
}

// The first position from `at` on that is not inside a UTF-8 character.
std::size_t boundary(std::string_view message, std::size_t at) {
  for (std::size_t i = at; i < message.size() && i < at + 4; ++i) {
    if ((byte_at(message, i) & 0xc0U) != 0x80U) return i;
  }
  return at;
}

}  // namespace

std::string printable(std::string_view message) {
  std::string escaped;
  for (std::size_t i = 0; i < message.size(); ++i) {
    if (!is_control(message, i)) {
      escaped += message[i];
      continue;
    }
    const auto byte = static_cast<std::uint8_t>(message[i]);
    if (byte >= 0x80) escaped.pop_back();
    escaped += "\\x" + hexadecimal({&byte, 1});
  }
  if (escaped.size() <= kMaxBytes) return escaped;
  const auto begin = boundary(escaped, kBeginning);
  const auto end = boundary(escaped, escaped.size() - kEnd);
  return text(std::string_view{escaped}.substr(0, begin), "... (", end - begin, " bytes are left out) ...",
              std::string_view{escaped}.substr(end));
}

}  // namespace libtrain::detail
