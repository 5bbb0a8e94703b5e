#include <libtrain/data/formats/indexed_shard.hpp>

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <utility>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/disk_file.hpp>

namespace libtrain::data::detail {

namespace {

void keep(const std::string& path, const ShardIdentity& identity, const ShardIndex& index) {
  try {
    save_shard_index(path, identity, index);
  } catch (const EnvironmentError& error) {
    log_warning(text("The index of '", identity.name, "' is not kept, so that the next run reads the shard again. ",
                     error.what()));
  }
}

// Of the processes that use a folder of indices, and the threads of each, one at a time reads a shard through: the
// others find its index then. Where there can be no locks, each reads it.
class Turn {
 public:
  explicit Turn(const std::string& index_path) {
    try {
      make_folder(std::filesystem::path(index_path).parent_path());
      auto file = open_to_write(index_path + ".lock.partial");
      if (lock_within(file, LockMode::exclusive, Deadline::after(kLongestTurn))) file_ = std::move(file);
    } catch (const DiskError&) {  // the index cannot be kept either, which says why
    }
  }
  Turn(const Turn&) = delete;  // holds a lock
  Turn& operator=(const Turn&) = delete;
  // One that waits for the lock of a file without a name gets it, finds the index, and unlinks another one's at worst.
  ~Turn() {
    if (file_.is_open()) ::unlink(file_.path().c_str());
  }

 private:
  static constexpr std::chrono::minutes kLongestTurn{10};

  DiskFile file_;
};

}  // namespace

IndexedShard open_shard(std::unique_ptr<const File> file, const ShardFormat& format, const ShardOptions& options) {
  require_file(file.get(), text(format.name, " shard"));
  const bool is_kept = !options.index_folder.empty() && !options.version.empty();
  const ShardIdentity identity{
      .format = std::string{format.name}, .name = file->name(), .size = file->size(), .version = options.version};
  const std::string path = is_kept ? shard_index_path(options.index_folder, identity) : std::string{};
  if (is_kept) {
    if (auto index = load_shard_index(path, identity)) return {.file = std::move(file), .index = std::move(*index)};
  }

  const Compression compression = format.compression(*file);
  if (compression != Compression::none) {
    file = inflate_file(*file, compression, options.inflated_limit_bytes);
  }
  if (!is_kept || compression != Compression::none) {
    ShardIndex index = format.index(*file);
    return {.file = std::move(file), .index = std::move(index)};
  }
  const Turn turn(path);
  auto index = load_shard_index(path, identity);
  if (!index) {
    index = format.index(*file);
    keep(path, identity, *index);
  }
  return {.file = std::move(file), .index = std::move(*index)};
}

}  // namespace libtrain::data::detail
