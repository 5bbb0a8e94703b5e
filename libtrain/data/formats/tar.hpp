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

/// Maximum length of a member's name; a longer one is an error.
constexpr std::size_t kLongestTarName = 4096;

/// The regular files in an uncompressed tar archive, with their names, in order. Reads POSIX.1-1988 (ustar),
/// POSIX.1-2001 (pax: path, linkpath and size) and GNU tar's long names and base-256 sizes. A hard link is a member
/// with the content of the one to which it points. Leaves out directories, devices and unknown members. Names are not
/// used as paths: nothing is ever written to them.
///
/// Throws EnvironmentError that names the file and the byte offset: for a wrong header checksum, a sparse file, a
/// symbolic link, a hard link to no member before it, a name in a global header, an archive without two zero blocks at
/// its end (a truncated file), and for anything after these blocks except up to 1 MiB of zeros (joined archives, or
/// files with lost pages). Throws what File::read_at throws.
ShardIndex index_tar(const File& file);

/// A tar archive with random access to its regular files; for supported formats see index_tar(). An archive in gzip,
/// recognised by its content, is inflated into memory when it is opened. Immutable: any thread may read, several at
/// once.
class TarFile {
 public:
  /// Builds the index, or loads it from `options.index_folder`. Throws what index_tar() throws, EnvironmentError for a
  /// damaged or too large compressed archive, and UsageError without a file.
  explicit TarFile(std::unique_ptr<const File> file, const ShardOptions& options = {});

  const std::string& name() const { return shard_.file->name(); }

  /// The number of members, which are regular files.
  std::uint64_t size() const { return shard_.index.size(); }

  /// The name of member number `member` in the archive, the length of its data, and their offset in the file (or in its
  /// inflated content). Throw UsageError unless `member` < size().
  std::string_view member_name(std::uint64_t member) const;
  std::uint64_t bytes(std::uint64_t member) const;
  std::uint64_t offset(std::uint64_t member) const;

  /// Reads the content of a member into `data`, whose memory is reused. A tar archive has no checksum of the content,
  /// but the header is checked again. Throws what File::read_at throws, StorageUnavailable if the header is not the one
  /// that was indexed, and UsageError unless `member` < size().
  void read(std::uint64_t member, std::string& data) const;

  /// The same for two members, by a single read if they are close together: a store takes about as long for both as for
  /// one.
  void read(std::uint64_t member, std::string& data, std::uint64_t other, std::string& other_data) const;

  /// The name, archive and offset of a member, for messages.
  std::string describe(std::uint64_t member) const;

 private:
  void require_member(std::uint64_t member) const;
  void require_header(std::uint64_t member, std::string_view block) const;
  bool has_name(std::uint64_t member, const std::string& in_header) const;

  detail::IndexedShard shard_;
};

/// Writes a tar archive of regular files: POSIX.1-1988 (ustar), with extended headers of POSIX.1-2001 (pax) for names
/// that are too long or not ASCII and for files of 8 GiB and more. It contains only names and contents (time, user and
/// group are 0, the mode is 0644), so that equal contents give equal bytes. The complete file appears with finish();
/// without that call no file is left. Errors are EnvironmentError that name the file. Used by one thread at a time.
class TarWriter {
 public:
  /// Writes to an existing local folder; finish() replaces an existing file.
  explicit TarWriter(std::string path);

  /// Throws UsageError after finish(), and for a name that is empty, longer than 4,096 bytes, ends in '/' or has a zero
  /// byte. Duplicate names are not detected.
  void add(std::string_view name, std::string_view data);

  /// Writes the two zero blocks at the end of an archive. Throws UsageError on a second call.
  void finish();

  /// The number of members so far.
  std::uint64_t size() const { return size_; }

  /// The size of the file so far.
  std::uint64_t bytes() const { return file_.size(); }

 private:
  void require_open() const;
  void require_name(std::string_view name) const;
  void write_padded(std::string_view data);

  libtrain::detail::OutputFile file_;
  std::uint64_t size_ = 0;
};

}  // namespace libtrain::data
