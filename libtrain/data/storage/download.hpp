#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>

#include <libtrain/data/storage/content_hash.hpp>
#include <libtrain/data/storage/disk_file.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data::detail {

/// How a block gets to the disk: returns 0, or the error code of the write. DiskFile::write, unless a test puts a full
/// disk in its place.
using WriteBlock = std::function<int(const DiskFile& to, std::uint64_t offset, std::span<const std::byte> bytes)>;

/// DiskFile::write.
int write_block(const DiskFile& to, std::uint64_t offset, std::span<const std::byte> bytes);

struct DownloadOptions {
  std::uint64_t block_bytes = std::uint64_t{4} << 20;  ///< read at once, and held in memory; at least 1
  WriteBlock write = write_block;
  std::function<void(std::uint64_t bytes)> progress = {};  ///< called after every block with its length
};

/// How a download ended: complete where there is neither a disk error nor a stop.
struct Download {
  ContentHash content = {};  ///< of a complete one
  int disk_error = 0;        ///< the error code of the write that failed
  bool stopped = false;      ///< a stop was requested before the end
};

/// Copies all of `from` to the beginning of `to`, block by block, and hashes it on the way. A stop is heard between two
/// blocks. Throws what File::read_at throws.
Download download(const File& from, const DiskFile& to, const DownloadOptions& options, const std::stop_token& stop);

}  // namespace libtrain::data::detail
