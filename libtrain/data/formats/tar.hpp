#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <libtrain/base/output_file.hpp>
#include <libtrain/data/formats/shard_index.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data {

/// Longer names of members are refused.
constexpr std::size_t kLongestTarName = 4096;

/// The regular files in an uncompressed tar archive, with their names, in their order. Reads POSIX.1-1988 (ustar),
/// POSIX.1-2001 (pax: path and size) and GNU tar's long names and base-256 sizes. Directories, links, devices and
/// unknown members are left out. Names are names only: nothing is ever written where they point.
///
/// Throws EnvironmentError that names the file and the byte offset: for a wrong header checksum, for a sparse file, for
/// a name in a global header, for an archive that ends before its two zero blocks, even between two members, as
/// truncated files do, and for anything behind these blocks but up to 1 MiB of zeros, as joined archives and files with
/// lost pages have it. Throws what File::read_at throws.
ShardIndex index_tar(const File& file);

/// A tar archive whose regular files are read in any order; see index_tar() for what is read. An archive in gzip, told
/// by its content, is inflated into memory when it is opened. Immutable: any thread may read, several at once.
class TarFile {
 public:
  /// Builds the index, or takes it from `options.index_folder`. Throws what index_tar() throws, EnvironmentError for a
  /// damaged or too large compressed archive, and UsageError without a file.
  explicit TarFile(std::unique_ptr<const File> file, const ShardOptions& options = {});

  const std::string& name() const { return shard_.file->name(); }

  /// The number of members, which are regular files.
  std::uint64_t size() const { return shard_.index.size(); }

  /// Of member number `member`: its name in the archive, how long its data are, and where they begin in the file (in
  /// its inflated content, where it is compressed). Throw UsageError unless `member` < size().
  std::string_view member_name(std::uint64_t member) const;
  std::uint64_t bytes(std::uint64_t member) const;
  std::uint64_t offset(std::uint64_t member) const;

  /// Makes `data` the content of a member, in the memory that it has where that suffices. A tar archive has no checksum
  /// of it, but its header is looked at again. Throws what File::read_at throws, StorageUnavailable where the header is
  /// not that which was indexed, and UsageError unless `member` < size().
  void read(std::uint64_t member, std::string& data) const;

  /// The same for two members into two strings, by a single read where little lies between them: a store takes about as
  /// long for both as for one.
  void read(std::uint64_t member, std::string& data, std::uint64_t other, std::string& other_data) const;

  /// How messages name a member: its name, its archive, its offset.
  std::string describe(std::uint64_t member) const;

 private:
  void require_member(std::uint64_t member) const;
  void require_header(std::uint64_t member, std::string_view block) const;

  detail::IndexedShard shard_;
};

/// Writes a tar archive of regular files: POSIX.1-1988 (ustar), with extended headers of POSIX.1-2001 (pax) for names
/// that are too long or not ASCII and for files of 8 GiB and more. Nothing but names and contents goes into it (time,
/// user and group are 0, the mode is 0644), so that equal contents give equal bytes. The file appears, complete, with
/// finish(); without that call nothing is left. Errors are EnvironmentError that name the file. Used by one thread at a
/// time.
class TarWriter {
 public:
  /// A file in an existing local folder; finish() replaces one of that name.
  explicit TarWriter(std::string path);

  /// Throws UsageError after finish(), and for a name that is empty, longer than 4,096 bytes, ends in '/' or has a zero
  /// byte. Names are not compared with each other.
  void add(std::string_view name, std::string_view data);

  /// Writes the two zero blocks that end an archive. Throws UsageError when called again.
  void finish();

  /// Members written so far.
  std::uint64_t size() const { return size_; }

  /// Bytes of the file so far.
  std::uint64_t bytes() const { return file_.size(); }

 private:
  void require_open() const;
  void require_name(std::string_view name) const;
  void write_padded(std::string_view data);

  libtrain::detail::OutputFile file_;
  std::uint64_t size_ = 0;
};

}  // namespace libtrain::data
