#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
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

/// The names of the classes of a data set in shards, by label: the lines of the file `classes.txt` that libtrain-pack
/// writes beside the shards. Immutable: any thread may call it, several at once.
class ClassNames {
 public:
  /// No names are known.
  ClassNames() = default;

  /// Reads the file. Throws as File::read_at; EnvironmentError that names file and offset as well for an empty line, a
  /// file without lines, and one longer than 64 MiB.
  explicit ClassNames(const File& file);

  /// Empty if no names are known.
  const std::vector<std::string>& names() const { return names_; }

  /// If names are known, throws EnvironmentError for a label of 0 or more that has no name. `place()`, called only
  /// then, describes the place of the label.
  template <typename Place>
  void require(std::int64_t label, const Place& place) const {
    if (!names_.empty() && static_cast<std::uint64_t>(label) >= names_.size()) fail(label, place());
  }

 private:
  [[noreturn]] void fail(std::int64_t label, const std::string& source) const;

  std::string file_;
  std::vector<std::string> names_;
};

/// The place of an image in a data set of many shards: the number of its shard and its position in that shard.
struct ShardPlace {
  std::size_t shard = 0;
  std::uint64_t position = 0;
};

/// Numbers the images of many shards consecutively; a shard may be empty. Immutable: any thread may call it.
class ShardTable {
 public:
  /// `name` is that of the set's folder, for messages; `sizes` are the numbers of images in the shards. Throws
  /// EnvironmentError if there are no images or more than 64 bits can count.
  ShardTable(std::string name, const std::vector<std::uint64_t>& sizes);

  const std::string& name() const { return name_; }

  /// The number of images in all shards.
  std::uint64_t size() const { return ends_.back(); }

  /// Takes time logarithmic in the number of shards. Throws UsageError unless `index` < size().
  ShardPlace place(std::uint64_t index) const;

  /// The numbers of images in the shards, in order, without empty shards: see ImageSource::blocks().
  std::vector<std::uint64_t> blocks() const;

 private:
  std::string name_;
  std::vector<std::uint64_t> ends_;  // for each shard, the number of the first image after it
};

template <typename Shard>
std::vector<std::uint64_t> sizes_of(const std::vector<Shard>& shards) {
  std::vector<std::uint64_t> sizes;
  sizes.reserve(shards.size());
  for (const auto& shard : shards) sizes.push_back(shard.size());
  return sizes;
}

/// The formats of files with many images each.
enum class ShardKind { parquet, tar, tf_record };

/// The plural for messages, such as "tar archives".
std::string_view name_of(ShardKind kind);

/// The format of the file at `path` below the storage's root by its name, in any case: names that end in ".parquet" are
/// Parquet; in ".tar", ".tar.gz" or ".tgz" tar; names that contain ".tfrecord" or end like "-00003-of-00128" are
/// TFRecord, except ".tfrecord-index" and ".partial", which ShardOptions::index_folder and the writers create.
/// std::nullopt unless the file lies directly in `folder` ("" for the root) and its name begins with `prefix`.
std::optional<ShardKind> shard_kind_of(std::string_view path, std::string_view folder, std::string_view prefix);

/// The path, below a folder of shards, of a file that exists while libtrain-pack replaces the set: then the folder
/// contains neither the complete previous set nor the complete new one.
inline constexpr std::string_view kUnfinishedSet = ".packing/publishing";

/// Throws EnvironmentError if `files`, the listing of `folder`, contain kUnfinishedSet.
void require_finished_set(const Storage& storage, const std::string& folder, const std::vector<FileInfo>& files);

/// The files directly in a folder of shards.
struct ShardFolder {
  std::vector<FileInfo> shards = {};  ///< of one kind, in the order of their names
  std::string class_names = {};       ///< the path of `classes.txt`; empty if there is none
};

/// The paths of files in `folder`, below it.
std::vector<std::string_view> names_of(const std::vector<FileInfo>& files, const std::string& folder);

/// Throws EnvironmentError that ends in `advice` if `names`, of files in `folder`, are of several splits: the name of a
/// file, or of a folder that contains it, begins with the word "train", and that of another with "validation", "valid",
/// "val", "test", "dev" or "eval", in any case.
void require_one_split(const std::string& folder, const std::vector<std::string_view>& names, std::string_view advice);

/// Throws EnvironmentError unless `names`, of files in `folder`, are complete sets of shards: of those with numbers
/// like "train-00003-of-00128.tar", which may begin with 0 or 1, none may be missing, and names that differ only in
/// numbers must have the same total. Other names are of no set. A `prefix` that ends among the numbers chooses some
/// shards of a set on purpose.
void require_complete_sets(const std::string& folder, const std::vector<std::string_view>& names,
                           std::string_view prefix);

/// Lists the folder once. Throws as Storage::list; EnvironmentError as well if it contains no shards of that kind, and
/// as require_finished_set(), require_one_split() and require_complete_sets(). std::nullopt takes all shards, of
/// whatever sets.
ShardFolder list_shards(const Storage& storage, const std::string& folder, const std::optional<std::string>& prefix,
                        ShardKind kind);

/// The results of open(file) for all files, in their order; calls it from up to 16 threads. Throws the exception of the
/// first of the files that failed.
template <typename Open>
auto open_concurrently(const std::vector<FileInfo>& files, const Open& open) {
  constexpr std::size_t kMaxThreads = 16;
  std::vector<std::optional<std::invoke_result_t<Open, const FileInfo&>>> opened(files.size());
  run_concurrently(files.size(), kMaxThreads,
                   [&](std::size_t i, const std::stop_token&) { opened[i].emplace(open(files[i])); });
  std::vector<std::invoke_result_t<Open, const FileInfo&>> shards;
  shards.reserve(files.size());
  for (auto& shard : opened) shards.push_back(*std::move(shard));
  return shards;
}

/// Throws EnvironmentError that names the shard if it contains no samples, as an incomplete copy may.
void require_samples(std::uint64_t samples, const std::string& shard);

/// Lists the folder once, reads the names of classes, and opens a shard from each file by `open`. Throws as
/// list_shards(), ClassNames, `open` and require_samples() do.
template <typename Options, typename Open>
auto open_shards(const Storage& storage, const Options& options, ShardKind kind, ClassNames& classes,
                 const Open& open) {
  const ShardFolder folder = list_shards(storage, options.folder, options.prefix, kind);
  if (!folder.class_names.empty()) classes = ClassNames(*storage.open(folder.class_names));
  return open_concurrently(folder.shards, [&](const FileInfo& file) {
    const ShardOptions shard{.index_folder = options.index_folder, .version = file.version};
    auto opened = open(open_counted(storage, file.path), shard);
    require_samples(opened.size(), opened.name());
    return opened;
  });
}

}  // namespace libtrain::data::detail
