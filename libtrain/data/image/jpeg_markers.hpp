#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace libtrain::data::detail {

/// Codes of markers: the byte after 0xFF (ITU-T T.81, table B.1).
inline constexpr std::uint8_t kBaselineFrame = 0xC0;
inline constexpr std::uint8_t kExtendedFrame = 0xC1;
inline constexpr std::uint8_t kProgressiveFrame = 0xC2;
inline constexpr std::uint8_t kDefineHuffmanTables = 0xC4;
inline constexpr std::uint8_t kJpegExtension = 0xC8;
inline constexpr std::uint8_t kArithmeticFrame = 0xC9;
inline constexpr std::uint8_t kArithmeticProgressiveFrame = 0xCA;
inline constexpr std::uint8_t kDefineArithmeticConditioning = 0xCC;
inline constexpr std::uint8_t kFirstRestart = 0xD0;  // of eight
inline constexpr std::uint8_t kStartOfImage = 0xD8;
inline constexpr std::uint8_t kEndOfImage = 0xD9;
inline constexpr std::uint8_t kStartOfScan = 0xDA;
inline constexpr std::uint8_t kDefineQuantizationTables = 0xDB;
inline constexpr std::uint8_t kDefineRestartInterval = 0xDD;
inline constexpr std::uint8_t kApplication0 = 0xE0;
inline constexpr std::uint8_t kApplication14 = 0xEE;

/// A frame header of any kind, whether or not libjpeg decodes it.
bool is_frame(std::uint8_t code);

struct JpegMarker {
  std::uint8_t code = 0;
  std::size_t offset = 0;                   ///< in the file, of the 0xFF before the code
  std::span<const std::byte> payload = {};  ///< behind the length; empty where the marker has none
  std::size_t end() const;                  ///< the offset of what follows
};

/// Walks from marker to marker of a JPEG, as far as the first scan: entropy-coded data is not understood. As libjpeg
/// does, it skips what lies between two markers without belonging to one. Throws EnvironmentError where the file is not
/// long enough for what it promises.
class JpegMarkers {
 public:
  /// `file` and `name` must outlive the walk. Throws EnvironmentError unless the file starts as a JPEG does.
  JpegMarkers(std::span<const std::byte> file, const std::string& name);

  JpegMarker next();

  [[noreturn]] void fail(std::size_t offset, const std::string& expected_and_found) const;

 private:
  std::size_t find_code() const;

  std::span<const std::byte> file_;
  const std::string& name_;
  std::size_t position_ = 2;
};

/// The big-endian 16-bit number at `offset` of `bytes`, which must have it.
inline int big_endian16(std::span<const std::byte> bytes, std::size_t offset) {
  return std::to_integer<int>(bytes[offset]) << 8 | std::to_integer<int>(bytes[offset + 1]);
}

}  // namespace libtrain::data::detail
