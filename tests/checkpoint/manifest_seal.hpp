#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

namespace libtrain::test {

/// CRC-32C bit by bit, as RFC 3720 defines it.
inline std::uint32_t slow_crc32c(const std::string& bytes) {
  std::uint32_t state = 0xffffffff;
  for (const char byte : bytes) {
    state ^= static_cast<std::uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) state = state >> 1 ^ ((state & 1) != 0 ? 0x82f63b78U : 0);
  }
  return ~state;
}

/// Gives the text of a changed manifest, as docs/checkpoints.md describes it, its right checksum again.
inline std::string with_right_checksum(std::string manifest) {
  const auto end = manifest.rfind(",\n \"manifest_crc32c\"");
  if (end == std::string::npos) return manifest;
  manifest.resize(end);
  char digits[11];
  std::snprintf(digits, sizeof digits, "0x%08x", slow_crc32c(manifest));
  return manifest + ",\n \"manifest_crc32c\": \"" + digits + "\"\n}\n";
}

}  // namespace libtrain::test
