#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace libtrain::data::detail {

/// Tar archives consist of blocks of this size.
constexpr std::size_t kTarBlock = 512;

/// The field of a header that tells what follows.
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

/// A header as it stands, before extended headers change it.
struct TarHeader {
  std::string name = {};  ///< with the prefix of POSIX in front
  std::uint64_t bytes = 0;
  TarType type = TarType::regular;
};

/// Reads a header of POSIX.1-1988 (ustar), of GNU tar or of the seventh edition of Unix from a block. Its checksum may
/// be the sum of signed or unsigned bytes; its numbers octal or, as GNU tar does, in base 256. Throws EnvironmentError
/// that names `file` and `offset`, which is that of the block.
TarHeader parse_tar_header(std::string_view block, const std::string& file, std::uint64_t offset);

[[noreturn]] void fail_tar(const std::string& file, std::uint64_t offset, const std::string& expected_and_found);

}  // namespace libtrain::data::detail
