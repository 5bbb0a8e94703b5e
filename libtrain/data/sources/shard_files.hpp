#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <libtrain/data/formats/shard_index.hpp>
#include <libtrain/data/sources/source_checks.hpp>
#include <libtrain/data/storage/file.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data::detail {

/// What the classes of a data set in shards are called, by label: the lines of the file `classes.txt` that
/// libtrain-pack writes beside them. Immutable: any thread may call it, several at once.
class ClassNames {
 public:
  /// Not known.
  ClassNames() = default;

  /// Reads the file. Throws as File::read_at; EnvironmentError that names file and offset as well for an empty line, a
  /// file without lines, and one longer than 64 MiB.
  explicit ClassNames(const File& file);

  /// Empty where they are not known.
  const std::vector<std::string>& names() const { return names_; }

  /// Throws EnvironmentError for a label of 0 or more that has no name, where names are known. `describe()`, called
  /// then alone, says where the label stands.
  template <typename Describe>
  void require(std::int64_t label, const Describe& describe) const {
    if (!names_.empty() && static_cast<std::uint64_t>(label) >= names_.size()) fail(label, describe());
  }

 private:
  [[noreturn]] void fail(std::int64_t label, const std::string& source) const;

  std::string file_;
  std::vector<std::string> names_;
};

/// Where an image lies in a data set of many shards: the number of its shard and its place among that shard's images.
struct ShardPlace {
  std::size_t shard = 0;
  std::uint64_t position = 0;
};

/// Numbers the images of many shards through, shard after shard; a shard may be empty. Immutable: any thread may call
/// it.
class ShardTable {
 public:
  /// `name` is that of the set's folder, for messages; `sizes` are how many images each shard holds. Throws
  /// EnvironmentError where there is no image at all, or more than 64 bits count.
  ShardTable(std::string name, const std::vector<std::uint64_t>& sizes);

  const std::string& name() const { return name_; }

  /// The images of all shards together.
  std::uint64_t size() const { return ends_.back(); }

  /// Takes time in proportion to the logarithm of the number of shards. Throws UsageError unless `index` < size().
  ShardPlace place(std::uint64_t index) const;

  /// How many images each shard holds, in order, without the empty ones: see ImageSource::blocks().
  std::vector<std::uint64_t> blocks() const;

 private:
  std::string name_;
  std::vector<std::uint64_t> ends_;  // of each shard, the number of the first image behind it
};

template <typename Shard>
std::vector<std::uint64_t> sizes_of(const std::vector<Shard>& shards) {
  std::vector<std::uint64_t> sizes;
  sizes.reserve(shards.size());
  for (const auto& shard : shards) sizes.push_back(shard.size());
  return sizes;
}

/// The formats of files that hold many images each.
enum class ShardKind { parquet, tar, tf_record };

/// The plural for messages, such as "tar archives".
std::string_view name_of(ShardKind kind);

/// What the file at `path` below the storage's root is by its name, letters in any case: names that end in ".parquet"
/// are Parquet; in ".tar", ".tar.gz" or ".tgz" tar; TFRecord are those that hold ".tfrecord" or end like
/// "-00003-of-00128", except ".tfrecord-index" and ".partial", what ShardOptions::index_folder and the writers leave
/// beside them. Nothing unless the file lies right in `folder` ("" for the root) and its name begins with `prefix`.
std::optional<ShardKind> shard_kind_of(std::string_view path, std::string_view folder, std::string_view prefix);

/// The path, below a folder of shards, of a file that libtrain-pack keeps there as long as the folder holds neither the
/// former set of shards as a whole nor the new one.
inline constexpr std::string_view kUnfinishedSet = ".packing/publishing";

/// Throws EnvironmentError where `files`, the listing of `folder`, say so: it may hold shards of two sets, or none.
void require_finished_set(const Storage& storage, const std::string& folder, const std::vector<FileInfo>& files);

/// What lies right in a folder of shards.
struct ShardFolder {
  std::vector<FileInfo> shards = {};  ///< of one kind, in the order of their names
  std::string class_names = {};       ///< the path of `classes.txt`; empty where there is none
};

/// Lists the folder once. Throws as Storage::list; EnvironmentError as well where it holds no shards of that kind, or
/// a set that is not complete.
ShardFolder list_shards(const Storage& storage, const std::string& folder, const std::string& prefix, ShardKind kind);

/// Calls work(i) once for each i below `count`, from up to 16 threads: what opens a file waits for its store more than
/// it computes. After a call that throws begin no more; of what was thrown the exception for the least i comes out.
void at_once(std::size_t count, const std::function<void(std::size_t)>& work);

/// What `open` makes of each file, in their order. Throws what it throws, for the first of the files that failed.
template <typename Open>
auto open_at_once(const std::vector<FileInfo>& files, const Open& open) {
  std::vector<std::optional<std::invoke_result_t<Open, const FileInfo&>>> opened(files.size());
  at_once(files.size(), [&](std::size_t i) { opened[i].emplace(open(files[i])); });
  std::vector<std::invoke_result_t<Open, const FileInfo&>> shards;
  shards.reserve(files.size());
  for (auto& shard : opened) shards.push_back(*std::move(shard));
  return shards;
}

/// Throws EnvironmentError that names the shard where it holds no samples: one that was lost looks like this.
void require_samples(std::uint64_t samples, const std::string& shard);

/// Lists the folder once, reads the names of classes, and has `open` make a shard of each file. Throws as
/// list_shards(), ClassNames, `open` and require_samples() do.
template <typename Options, typename Open>
auto open_shards(const Storage& storage, const Options& options, ShardKind kind, ClassNames& classes,
                 const Open& open) {
  const ShardFolder folder = list_shards(storage, options.folder, options.prefix, kind);
  if (!folder.class_names.empty()) classes = ClassNames(*storage.open(folder.class_names));
  return open_at_once(folder.shards, [&](const FileInfo& file) {
    const ShardOptions shard{.index_folder = options.index_folder, .version = file.version};
    auto opened = open(open_counted(storage, file.path), shard);
    require_samples(opened.size(), opened.name());
    return opened;
  });
}

}  // namespace libtrain::data::detail
