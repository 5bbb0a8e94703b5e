#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace libtrain::detail {

/// CRC-32C, the cyclic redundancy check with Castagnoli's polynomial 0x1edc6f41, bits reflected, register and result
/// inverted (RFC 3720, section 12.1); of "123456789" it is 0xe3069283. Uses the processor's instructions if it has
/// them. Any thread may call these functions.
std::uint32_t crc32c(std::string_view bytes) noexcept;

inline std::uint32_t crc32c(std::span<const std::byte> bytes) noexcept {
  return crc32c(std::string_view{reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

/// The checksum of bytes with checksum `crc` followed by `bytes`.
std::uint32_t extend_crc32c(std::uint32_t crc, std::string_view bytes) noexcept;

/// The checksum of bytes with checksum `first` followed by `second_bytes` bytes with checksum `second`. Takes about a
/// microsecond, whatever their number.
std::uint32_t combine_crc32c(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) noexcept;

/// The form in TFRecord files and TensorBoard's event files: rotated right by 15 bits, plus 0xa282ead8, modulo 2^32.
inline std::uint32_t masked_crc32c(std::string_view bytes) noexcept {
  const std::uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8U;
}

/// extend_crc32c() by tables, eight bytes at a time.
std::uint32_t extend_crc32c_by_tables(std::uint32_t crc, std::string_view bytes) noexcept;

/// extend_crc32c() by SSE 4.2 or ARMv8 instructions; requires has_crc32c_instructions().
std::uint32_t extend_crc32c_by_instructions(std::uint32_t crc, std::string_view bytes) noexcept;

bool has_crc32c_instructions() noexcept;

/// extend_crc32c() by carry-less multiplication of 512 bits at a time beside the instructions; requires
/// has_crc32c_folding().
std::uint32_t extend_crc32c_by_folding(std::uint32_t crc, std::string_view bytes) noexcept;

bool has_crc32c_folding() noexcept;

}  // namespace libtrain::detail
