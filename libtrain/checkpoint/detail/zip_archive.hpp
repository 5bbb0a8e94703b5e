#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include <libtrain/checkpoint/detail/input_file.hpp>

namespace libtrain::detail {

/// A file in a zip archive.
struct ZipRecord {
  std::uint64_t offset = 0;  ///< of its first byte in the archive
  std::uint64_t bytes = 0;
  std::uint32_t crc32 = 0;  ///< 0 if the writer computed none
  bool is_plain = false;    ///< neither compressed nor encrypted
};

/// The directory of a zip archive as torch.save writes it: PKWARE's APPNOTE 6.3.10, with or without its 64-bit
/// extension, in one part, without a comment, nothing before the first record. All sizes and offsets are checked
/// against the file, no two records overlap, and names appear once.
class ZipArchive {
 public:
  /// `file` must outlive the archive. Throws FileFault, and as InputFile::read.
  explicit ZipArchive(const InputFile& file);

  /// By name.
  const std::map<std::string, ZipRecord, std::less<>>& records() const { return records_; }

  /// nullptr if there is none.
  const ZipRecord* find(std::string_view name) const;

  /// Reads all of a record into `to`, which has its size, and checks its CRC-32. Throws FileFault if the checksum is
  /// another one or the record is not plain, and as InputFile::read.
  void read(const ZipRecord& record, std::span<std::byte> to) const;

  /// The same into a string; FileFault if it is longer than `limit_bytes`.
  std::string read(const ZipRecord& record, std::uint64_t limit_bytes) const;

 private:
  void read_directory(std::string_view directory, std::uint64_t count, std::uint64_t directory_offset);

  const InputFile& file_;
  std::map<std::string, ZipRecord, std::less<>> records_;
};

}  // namespace libtrain::detail
