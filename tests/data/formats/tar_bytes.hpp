#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace libtrain::data {

/// Tar archives made by hand, from the tables in POSIX.1 ("ustar Interchange Format"), with nothing of libtrain.

/// A member; what is empty is left as zeros, a size is made of the data where it is not given.
struct TarBytes {
  std::string name = {};
  std::string data = {};
  char type = '0';
  std::string prefix = {};
  std::string size_field = {};
  std::string magic = std::string("ustar\0", 6) + "00";
  std::string link = {};
};

inline std::string octal(std::uint64_t number, int digits) {
  std::string result;
  for (int i = 0; i < digits; ++i, number /= 8) result.insert(result.begin(), static_cast<char>('0' + number % 8));
  return result;
}

enum class TarSum { of_unsigned_bytes, of_signed_bytes };

/// Writes the checksum of the header that begins at `offset`: six digits, a zero, a space.
inline void set_tar_checksum(std::string& archive, std::size_t offset, TarSum sum = TarSum::of_unsigned_bytes) {
  archive.replace(offset + 148, 8, 8, ' ');
  int total = 0;
  for (const char byte : archive.substr(offset, 512)) {
    total += sum == TarSum::of_signed_bytes ? static_cast<signed char>(byte) : static_cast<unsigned char>(byte);
  }
  archive.replace(offset + 148, 7, octal(static_cast<std::uint64_t>(total), 6) + '\0');
}

inline std::string padded(std::string data) {
  data.resize((data.size() + 511) / 512 * 512, '\0');
  return data;
}

inline std::string tar_member(const TarBytes& member, TarSum sum = TarSum::of_unsigned_bytes) {
  std::string header(512, '\0');
  const auto put = [&](std::size_t begin, const std::string& bytes) { header.replace(begin, bytes.size(), bytes); };
  put(0, member.name);
  put(100, "0000644");
  put(108, "0001750");
  put(116, "0001750");
  put(124, member.size_field.empty() ? octal(member.data.size(), 11) : member.size_field);
  put(136, "14000000000");
  header[156] = member.type;
  put(157, member.link);
  put(257, member.magic);
  put(345, member.prefix);
  set_tar_checksum(header, 0, sum);
  return header + padded(member.data);
}

inline const std::string& tar_end() {
  static const std::string blocks(1024, '\0');
  return blocks;
}

/// A record of an extended header.
inline std::string pax_line(const std::string& keyword, const std::string& value) {
  const std::string rest = " " + keyword + "=" + value + "\n";
  std::size_t length = rest.size();
  for (int i = 0; i < 3; ++i) length = rest.size() + std::to_string(length).size();
  return std::to_string(length) + rest;
}

/// Corrects the checksums of an archive that was changed, in all blocks that look like headers.
inline void repair_tar(std::string& archive) {
  for (std::size_t offset = 0; offset + 512 <= archive.size(); offset += 512) {
    if (std::string_view{archive}.substr(offset + 257, 5) == "ustar") set_tar_checksum(archive, offset);
  }
}

}  // namespace libtrain::data
