#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace libtrain::data::detail {

/// The block size of tar archives.
constexpr std::size_t kTarBlock = 512;

/// A field of a header.
struct TarField {
  std::size_t begin = 0;
  std::size_t bytes = 0;
};

// The header of POSIX.1-1988 ("ustar Interchange Format"). Numbers are octal digits and a zero.
inline constexpr TarField kTarName{.begin = 0, .bytes = 100};
inline constexpr TarField kTarMode{.begin = 100, .bytes = 8};
inline constexpr TarField kTarUser{.begin = 108, .bytes = 8};
inline constexpr TarField kTarGroup{.begin = 116, .bytes = 8};
inline constexpr TarField kTarSize{.begin = 124, .bytes = 12};
inline constexpr TarField kTarTime{.begin = 136, .bytes = 12};
inline constexpr TarField kTarChecksum{.begin = 148, .bytes = 8};
inline constexpr std::size_t kTarType = 156;
inline constexpr TarField kTarLink{.begin = 157, .bytes = 100};
inline constexpr TarField kTarMagic{.begin = 257, .bytes = 6};
inline constexpr TarField kTarVersion{.begin = 263, .bytes = 2};
inline constexpr TarField kTarDeviceMajor{.begin = 329, .bytes = 8};
inline constexpr TarField kTarDeviceMinor{.begin = 337, .bytes = 8};
inline constexpr TarField kTarPrefix{.begin = 345, .bytes = 155};

/// Distinguishes POSIX headers from those of GNU tar, which writes "ustar " here and other values in the field of the
/// prefix.
inline constexpr std::string_view kTarPosixMagic{"ustar\0", 6};

/// The type of the entry after a header.
enum class TarType : char {
  regular_before_posix = '\0',
  regular = '0',
  hard_link = '1',
  symbolic_link = '2',
  character_device = '3',
  block_device = '4',
  directory = '5',
  fifo = '6',
  contiguous = '7',
  pax_global = 'g',
  pax = 'x',
  pax_solaris = 'X',
  gnu_long_link = 'K',
  gnu_long_name = 'L',
  gnu_sparse = 'S',
};

/// A header before extended headers override it.
struct TarHeader {
  std::string name = {};  ///< including the prefix of POSIX
  std::uint64_t bytes = 0;
  TarType type = TarType::regular;
  std::string link = {};  ///< the name of the member or file to which a link points
};

/// Reads a header of POSIX.1-1988 (ustar), of GNU tar or of the seventh edition of Unix from a block. Its checksum may
/// be the sum of signed or unsigned bytes, its numbers octal or, as in GNU tar, in base 256. Throws EnvironmentError
/// that names `file` and `offset`, which is that of the block.
TarHeader parse_tar_header(std::string_view block, const std::string& file, std::uint64_t offset);

[[noreturn]] void fail_tar(const std::string& file, std::uint64_t offset, const std::string& expected_and_found);

/// The values of an extended header of POSIX.1-2001 for the following members; an empty value resets that of an earlier
/// header.
struct PaxValues {
  std::optional<std::string> path = {};
  std::optional<std::string> link = {};
  std::optional<std::string> size = {};  ///< bytes, in decimal
};

/// Reads the records "length keyword=value\n" of an extended header into `values`; ignores keywords other than path,
/// linkpath and size. `offset` is that of `records` in the file. Throws EnvironmentError that names `file` and the byte
/// offset for damaged records, and for those of a sparse file (GNU.sparse.*), which is not supported.
void parse_pax(std::string_view records, const std::string& file, std::uint64_t offset, PaxValues& values);

/// One record. The length includes its own digits.
std::string pax_record(std::string_view keyword, std::string_view value);

}  // namespace libtrain::data::detail
