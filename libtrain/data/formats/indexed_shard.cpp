#include <libtrain/data/formats/indexed_shard.hpp>

#include <optional>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>

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
  ShardIndex index = format.index(*file);
  if (is_kept && compression == Compression::none) keep(path, identity, index);
  return {.file = std::move(file), .index = std::move(index)};
}

}  // namespace libtrain::data::detail
