#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/data/formats/inflate.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data {

/// The positions of the entries of a shard: the records of a TFRecord file, or the regular files of a tar archive.
/// Immutable after it is built: any thread may read it. Takes 24 bytes per entry, and the names.
class ShardIndex {
 public:
  void add(std::uint64_t offset, std::uint64_t bytes, std::string_view name = {});

  /// An entry whose content is that of entry number `target`, which is below size().
  void add_link(std::size_t target, std::string_view name);

  std::size_t size() const { return entries_.size(); }

  /// The offset in the file, the length and the name of the content of entry number `entry`, which is below size(); the
  /// name is empty in formats without names.
  std::uint64_t offset(std::size_t entry) const { return entries_[entry].offset; }
  std::uint64_t bytes(std::size_t entry) const { return entries_[entry].bytes; }
  std::string_view name(std::size_t entry) const;

  /// The entry whose content it has: itself, unless it is a link.
  std::size_t target(std::size_t entry) const;

  bool operator==(const ShardIndex&) const = default;

 private:
  struct Entry {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::uint64_t name_end = 0;  // in names_; a name begins at the end of the previous one
    bool operator==(const Entry&) const = default;
  };

  std::vector<Entry> entries_;
  std::string names_;
  std::map<std::size_t, std::size_t> targets_;  // of the links
};

/// The state of a shard that an index belongs to.
struct ShardIdentity {
  std::string format = {};   ///< such as "tar"
  std::string name = {};     ///< File::name()
  std::uint64_t size = 0;    ///< bytes
  std::string version = {};  ///< FileInfo::version

  bool operator==(const ShardIdentity&) const = default;
};

/// The path of the index of this shard in `folder`. It does not depend on size and version, so that the index of a
/// changed shard replaces the old one.
std::string shard_index_path(const std::string& folder, const ShardIdentity& identity);

/// The index in the file `path`; std::nullopt if it does not exist or belongs to another state of the shard. Checks its
/// checksum and every entry; a damaged index counts as absent, with a warning.
std::optional<ShardIndex> load_shard_index(const std::string& path, const ShardIdentity& identity);

/// Writes the file `path`, complete or not at all, and creates its folders. Any number of processes may do so at the
/// same time. Throws EnvironmentError if that fails.
void save_shard_index(const std::string& path, const ShardIdentity& identity, const ShardIndex& index);

/// Options for opening a shard.
struct ShardOptions {
  /// A local folder for the indices of shards, so that each shard is indexed only once. Used only if `version` is set,
  /// and not for compressed shards, whose content must be inflated in any case. It may be copied together with the
  /// shards: a shard at another place uses the index of a shard with the same name, size, and first and last 64 KiB.
  std::string index_folder = {};

  /// FileInfo::version of the shard: an index is used only for the version from which it was built.
  std::string version = {};

  /// Maximum length of the content of a compressed shard, which is kept in memory; a longer one is an error.
  std::uint64_t inflated_limit_bytes = std::uint64_t{4} << 30;
};

namespace detail {

/// The functions of a shard format.
struct ShardFormat {
  std::string_view name = {};
  Compression (*compression)(const File&) = nullptr;
  ShardIndex (*index)(const File&) = nullptr;
};

/// A shard that is ready to be read. `file` is its content, inflated if it was compressed.
struct IndexedShard {
  std::unique_ptr<const File> file = {};
  ShardIndex index = {};
};

/// Loads the index from the folder if it exists and fits; otherwise builds and saves it. If several processes or
/// threads open a shard at the same time, one builds the index and the others wait, at most 10 minutes. If it cannot be
/// saved, only a warning is logged. Throws what building an index throws, what inflate_file() throws, and UsageError
/// without a file.
IndexedShard open_shard(std::unique_ptr<const File> file, const ShardFormat& format, const ShardOptions& options);

/// Throws StorageUnavailable: the header of `entry` is not the one that was indexed.
[[noreturn]] void fail_changed_shard(const std::string& entry);

}  // namespace detail

}  // namespace libtrain::data
