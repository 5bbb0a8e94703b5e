#include <libtrain/data/formats/utf8_check.hpp>

namespace libtrain::data {

bool Utf8Check::begin_character(std::uint8_t byte) {
  lowest_ = 0x80;
  highest_ = 0xbf;
  if (byte >= 0xc2 && byte <= 0xdf) {
    missing_ = 1;
  } else if (byte >= 0xe0 && byte <= 0xef) {
    missing_ = 2;
    if (byte == 0xe0) lowest_ = 0xa0;
    if (byte == 0xed) highest_ = 0x9f;
  } else if (byte >= 0xf0 && byte <= 0xf4) {
    missing_ = 3;
    if (byte == 0xf0) lowest_ = 0x90;
    if (byte == 0xf4) highest_ = 0x8f;
  } else {
    return false;
  }
  return true;
}

std::optional<std::size_t> Utf8Check::add(std::string_view piece) {
  for (std::size_t position = 0; position < piece.size(); ++position) {
    const auto byte = static_cast<std::uint8_t>(piece[position]);
    if (missing_ > 0) {
      if (byte < lowest_ || byte > highest_) return position;
      lowest_ = 0x80;
      highest_ = 0xbf;
      --missing_;
    } else if (byte >= 0x80 && !begin_character(byte)) {
      return position;
    }
  }
  return std::nullopt;
}

}  // namespace libtrain::data
