#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace libtrain::data
