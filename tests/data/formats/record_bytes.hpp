#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace libtrain::data {

/// TFRecord files made by hand, with nothing of libtrain.

/// From the definition, bit by bit: the remainder of the message, first and last inverted, by the polynomial of degree
/// 32.
inline std::uint32_t crc32c_bit_by_bit(std::string_view bytes) {
  std::uint32_t remainder = 0xffffffffU;
  for (const char byte : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      const bool is_odd = ((static_cast<unsigned char>(byte) >> bit) & 1U) != (remainder & 1U);
      remainder = (remainder >> 1) ^ (is_odd ? 0x82f63b78U : 0U);
    }
  }
  return ~remainder;
}

inline std::string little_endian(std::uint64_t number, int bytes) {
  std::string result;
  for (int i = 0; i < bytes; ++i) result.push_back(static_cast<char>((number >> (8 * i)) & 0xff));
  return result;
}

inline std::uint64_t from_little_endian(std::string_view bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) number = number * 256 + static_cast<unsigned char>(bytes[i]);
  return number;
}

inline std::string masked_checksum(std::string_view bytes) {
  const std::uint32_t crc = crc32c_bit_by_bit(bytes);
  const std::uint32_t rotated = (crc >> 15) | (crc << 17);
  return little_endian(rotated + 0xa282ead8U, 4);
}

inline std::string framed(std::string_view data) {
  const std::string length = little_endian(data.size(), 8);
  std::string record = length + masked_checksum(length);
  record += data;
  return record + masked_checksum(data);
}

/// Corrects the checksums of a file that was changed, as far as its lengths lead.
inline void repair_records(std::string& file) {
  for (std::size_t offset = 0; file.size() - offset >= 16;) {
    file.replace(offset + 8, 4, masked_checksum(std::string_view{file}.substr(offset, 8)));
    const std::uint64_t length = from_little_endian(std::string_view{file}.substr(offset, 8));
    if (length > file.size() - offset - 16) return;
    const std::size_t begin = offset + 12;
    const auto bytes = static_cast<std::size_t>(length);
    file.replace(begin + bytes, 4, masked_checksum(std::string_view{file}.substr(begin, bytes)));
    offset = begin + bytes + 4;
  }
}

}  // namespace libtrain::data
