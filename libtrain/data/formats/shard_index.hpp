#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/data/formats/inflate.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data {

/// Where the entries of a shard lie: the records of a TFRecord file, the regular files of a tar archive. Immutable once
/// it is built: any thread may read it. 24 bytes an entry, and the names.
class ShardIndex {
 public:
  void add(std::uint64_t offset, std::uint64_t bytes, std::string_view name = {});

  std::size_t size() const { return entries_.size(); }

  /// Of entry number `entry`, below size(): where its content begins in the file, how long it is, and its name, empty
  /// in formats without names.
  std::uint64_t offset(std::size_t entry) const { return entries_[entry].offset; }
  std::uint64_t bytes(std::size_t entry) const { return entries_[entry].bytes; }
  std::string_view name(std::size_t entry) const;

  bool operator==(const ShardIndex&) const = default;

 private:
  struct Entry {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::uint64_t name_end = 0;  // in names_; a name begins where the one before ends
    bool operator==(const Entry&) const = default;
  };

  std::vector<Entry> entries_;
  std::string names_;
};

/// The state of a shard that an index belongs to.
struct ShardIdentity {
  std::string format = {};   ///< such as "tar"
  std::string name = {};     ///< File::name()
  std::uint64_t size = 0;    ///< bytes
  std::string version = {};  ///< FileInfo::version

  bool operator==(const ShardIdentity&) const = default;
};

/// The file in `folder` that keeps the index of this shard. It does not depend on size and version, so that the index
/// of a changed shard takes the place of the old one.
std::string shard_index_path(const std::string& folder, const ShardIdentity& identity);

/// The index in the file `path`; nothing where there is none or where it belongs to another state of the shard. A
/// damaged one counts as absent too, with a warning: its checksum and every entry are checked.
std::optional<ShardIndex> load_shard_index(const std::string& path, const ShardIdentity& identity);

/// Writes the file `path`, complete or not at all, and the folders that it lies in. Any number of processes may do so
/// at the same time. Throws EnvironmentError where that fails.
void save_shard_index(const std::string& path, const ShardIdentity& identity, const ShardIndex& index);

/// How a shard is opened.
struct ShardOptions {
  /// A local folder that keeps the indices of shards, so that a shard is read through only once. Used where the version
  /// below is known, and not for compressed shards, whose content has to be inflated anyway. It may be copied along
  /// with the shards: the first index of a shard at another place is that of a shard there with the same name, size,
  /// and first and last 64 KiB.
  std::string index_folder = {};

  /// FileInfo::version of the shard: an index is used only for the version that it was built from.
  std::string version = {};

  /// A compressed shard whose content is longer is refused: it has to lie in memory.
  std::uint64_t inflated_limit_bytes = std::uint64_t{4} << 30;
};

namespace detail {

/// What tells the shards of one format from those of another.
struct ShardFormat {
  std::string_view name = {};
  Compression (*compression)(const File&) = nullptr;
  ShardIndex (*index)(const File&) = nullptr;
};

/// A shard that is ready to be read. `file` holds its content, inflated where it was compressed.
struct IndexedShard {
  std::unique_ptr<const File> file = {};
  ShardIndex index = {};
};

/// Takes the index from the folder where it is there and fits; builds it otherwise, and keeps it. Of several processes
/// or threads that open a shard at the same time one builds the index, for which the others wait, at most 10 minutes.
/// Where it cannot be kept, a warning is all. Throws what building an index throws, what inflate_file() throws, and
/// UsageError without a file.
IndexedShard open_shard(std::unique_ptr<const File> file, const ShardFormat& format, const ShardOptions& options);

/// Throws StorageUnavailable: the header of what `entry` describes is not the one that was indexed.
[[noreturn]] void fail_changed_shard(const std::string& entry);

}  // namespace detail

}  // namespace libtrain::data
