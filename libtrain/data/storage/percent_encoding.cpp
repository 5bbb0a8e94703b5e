#include <libtrain/data/storage/percent_encoding.hpp>

#include <cstddef>

namespace libtrain::data::detail {

namespace {

// The value of a hexadecimal digit, or -1.
int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool is_unreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
         c == '_' || c == '~';
}

}  // namespace

std::optional<std::string> percent_decode(std::string_view encoded) {
  std::string plain;
  plain.reserve(encoded.size());
  for (std::size_t i = 0; i < encoded.size(); ++i) {
    if (encoded[i] != '%') {
      plain += encoded[i];
      continue;
    }
    if (encoded.size() - i < 3) return std::nullopt;
    const int high = digit_value(encoded[i + 1]);
    const int low = digit_value(encoded[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    plain += static_cast<char>(16 * high + low);
    i += 2;
  }
  return plain;
}

std::string percent_encode(std::string_view plain) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : plain) {
    if (is_unreserved(c)) {
      encoded += c;
      continue;
    }
    const unsigned int byte = static_cast<unsigned char>(c);
    encoded += '%';
    encoded += digits[byte >> 4];
    encoded += digits[byte & 0x0fU];
  }
  return encoded;
}

}  // namespace libtrain::data::detail
