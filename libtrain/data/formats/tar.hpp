#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <libtrain/data/formats/indexed_shard.hpp>
#include <libtrain/data/formats/tar_index.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data {

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
  /// of it. Throws what File::read_at throws, and UsageError unless `member` < size().
  void read(std::uint64_t member, std::string& data) const;

  /// The same for two members into two strings, by a single read where little lies between them: a store takes about as
  /// long for both as for one.
  void read(std::uint64_t member, std::string& data, std::uint64_t other, std::string& other_data) const;

  /// How messages name a member: its name, its archive, its offset.
  std::string describe(std::uint64_t member) const;

 private:
  void require_member(std::uint64_t member) const;

  detail::IndexedShard shard_;
};

}  // namespace libtrain::data
