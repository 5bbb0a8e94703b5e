#include <libtrain/data/formats/shard_index.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/detail/sealed_message.hpp>
#include <libtrain/data/storage/disk_file.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data {

namespace {

constexpr std::string_view kIndexFormat = "ltshard3";

enum IndexField : std::uint32_t {
  kShardFormat = 1,
  kShardName = 2,
  kShardSize = 3,
  kShardVersion = 4,
  kShardEntry = 5,
};
enum EntryField : std::uint32_t { kEntryOffset = 1, kEntryBytes = 2, kEntryName = 3, kEntryTarget = 4 };

// An entry takes up to 28 bytes here and at least 16 in its shard; one with a name of up to 4,096 bytes takes at least
// 512 in its shard.
std::uint64_t longest_file(const ShardIdentity& identity) {
  const std::uint64_t strings = identity.format.size() + identity.name.size() + identity.version.size();
  return 16 * identity.size + strings + (std::uint64_t{64} << 10);
}

detail::WireWriter encode(const ShardIdentity& identity, const ShardIndex& index) {
  detail::WireWriter message;
  message.bytes(kShardFormat, identity.format);
  message.bytes(kShardName, identity.name);
  message.varint(kShardSize, identity.size);
  message.bytes(kShardVersion, identity.version);
  for (std::size_t i = 0; i < index.size(); ++i) {
    detail::WireWriter entry;
    if (index.target(i) == i) {
      entry.varint(kEntryOffset, index.offset(i));
      entry.varint(kEntryBytes, index.bytes(i));
    }
    if (!index.name(i).empty()) entry.bytes(kEntryName, index.name(i));
    if (index.target(i) != i) entry.varint(kEntryTarget, index.target(i));
    message.bytes(kShardEntry, entry.message());
  }
  return message;
}

void decode_entry(detail::WireReader entry, const ShardIdentity& identity, ShardIndex& index) {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::string_view name;
  std::optional<std::uint64_t> target;
  while (const auto field = entry.next()) {
    if (field->number == kEntryOffset) offset = field->value;
    if (field->number == kEntryBytes) bytes = field->value;
    if (field->number == kEntryName) name = field->bytes;
    if (field->number == kEntryTarget) target = field->value;
  }
  if (target) {
    if (*target < index.size()) return index.add_link(static_cast<std::size_t>(*target), name);
    entry.fail(text("expected a link to one of ", index.size(), " entries, found one to number ", *target));
  }
  std::size_t last = index.size();
  while (last > 0 && index.target(last - 1) != last - 1) --last;
  const std::uint64_t earliest = last == 0 ? 0 : index.offset(last - 1) + index.bytes(last - 1);
  if (offset < earliest || offset > identity.size || bytes > identity.size - offset) {
    entry.fail(text("expected an entry between bytes ", earliest, " and ", identity.size, " of the shard, found ",
                    bytes, " bytes at ", offset));
  }
  index.add(offset, bytes, name);
}

// The identity precedes the entries: returns std::nullopt if fits(identity) is false. Throws EnvironmentError for
// entries that the shard cannot have.
template <typename Fits>
std::optional<ShardIndex> decode(detail::WireReader message, const ShardIdentity& expected, const Fits& fits) {
  ShardIdentity identity;
  ShardIndex index;
  while (const auto field = message.next()) {
    if (field->number == kShardFormat) identity.format = field->bytes;
    if (field->number == kShardName) identity.name = field->bytes;
    if (field->number == kShardSize) identity.size = field->value;
    if (field->number == kShardVersion) identity.version = field->bytes;
    if (field->number != kShardEntry || field->type != detail::WireType::bytes) continue;
    if (!fits(identity)) return std::nullopt;
    decode_entry(message.nested(*field), expected, index);
  }
  if (!fits(identity)) return std::nullopt;
  return index;
}

template <typename Fits>
std::optional<ShardIndex> load(const std::string& path, const ShardIdentity& expected, const Fits& fits) {
  try {
    const auto message = detail::SealedMessage::read(path, kIndexFormat, longest_file(expected));
    return message ? decode(message->reader(), expected, fits) : std::nullopt;
  } catch (const EnvironmentError& damage) {
    log_warning(text("The index of '", expected.name, "' cannot be used and is built again. ", damage.what()));
    return std::nullopt;
  }
}

// The end of the shard's name, for people who look into the folder.
std::string readable_part(const std::string& name) {
  constexpr std::size_t kMax = 64;
  std::string part = name.substr(name.rfind('/') + 1);
  if (part.size() > kMax) part.erase(0, part.size() - kMax);
  const auto is_harmless = [](char c) {
    const bool is_alphanumeric = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    return is_alphanumeric || c == '-' || c == '_' || c == '.';
  };
  std::replace_if(part.begin(), part.end(), [&](char c) { return !is_harmless(c); }, '_');
  return part;
}

// Data sets skip names that end in "-index" when they look for shards.
std::string path_in(const std::string& folder, const ShardIdentity& identity, const ContentHash& hash) {
  const auto name = text(readable_part(identity.name), '-', to_string(hash), '.', identity.format, "-index");
  return (std::filesystem::path(folder) / name).string();
}

}  // namespace

void ShardIndex::add(std::uint64_t offset, std::uint64_t bytes, std::string_view name) {
  names_ += name;
  entries_.push_back({.offset = offset, .bytes = bytes, .name_end = names_.size()});
}

void ShardIndex::add_link(std::size_t target, std::string_view name) {
  targets_.emplace(entries_.size(), this->target(target));
  add(offset(target), bytes(target), name);
}

std::size_t ShardIndex::target(std::size_t entry) const {
  const auto found = targets_.find(entry);
  return found == targets_.end() ? entry : found->second;
}

std::string_view ShardIndex::name(std::size_t entry) const {
  const std::uint64_t begin = entry == 0 ? 0 : entries_[entry - 1].name_end;
  return std::string_view{names_}.substr(begin, entries_[entry].name_end - begin);
}

std::string shard_index_path(const std::string& folder, const ShardIdentity& identity) {
  return path_in(folder, identity, content_hash(identity.name));
}

std::optional<ShardIndex> load_shard_index(const std::string& path, const ShardIdentity& identity) {
  return load(path, identity, [&](const ShardIdentity& found) { return found == identity; });
}

void save_shard_index(const std::string& path, const ShardIdentity& identity, const ShardIndex& index) {
  detail::write_sealed_message(path, kIndexFormat, encode(identity, index).message());
}

}  // namespace libtrain::data

namespace libtrain::data::detail {

namespace {

void keep(const std::vector<std::string>& paths, const ShardIdentity& identity, const ShardIndex& index) {
  try {
    for (const auto& path : paths) save_shard_index(path, identity, index);
  } catch (const EnvironmentError& error) {
    log_warning(text("The index of '", identity.name, "' cannot be saved, so the next run indexes the shard again. ",
                     error.what()));
  }
}

// The file in `folder` for the index that copies of the shard share, which is identified by its name without the
// folder, its size, and the first and the last 64 KiB of its content.
std::string shared_path(const std::string& folder, const ShardIdentity& identity, const File& file) {
  constexpr std::uint64_t kEnd = std::uint64_t{64} << 10;
  const auto bytes = static_cast<std::size_t>(std::min(identity.size, kEnd));
  const auto name = std::string_view{identity.name}.substr(identity.name.rfind('/') + 1);
  const auto content =
      text(name, ' ', identity.size, ' ', read_range(file, 0, bytes), read_range(file, identity.size - bytes, bytes));
  return path_in(folder, identity, content_hash(content));
}

// Loads an index that was built from a copy of the shard at another place. An index under the same name would be one of
// another version of the shard.
std::optional<ShardIndex> load_shared(const std::string& path, const ShardIdentity& identity) {
  return load(path, identity, [&](const ShardIdentity& found) {
    return found.format == identity.format && found.size == identity.size && found.name != identity.name;
  });
}

// One process and one thread at a time builds the index of a shard in a folder of indices; the others then find the
// index. If the file system has no locks, each of them builds it.
class Turn {
 public:
  explicit Turn(const std::string& index_path) {
    try {
      make_folder(std::filesystem::path(index_path).parent_path());
      auto file = open_to_write(index_path + ".lock.partial");
      if (lock_within(file, LockMode::exclusive, Deadline::after(kLongestTurn))) file_ = std::move(file);
    } catch (const DiskError&) {  // saving the index fails as well, and logs the reason
    }
  }
  Turn(const Turn&) = delete;  // owns a lock
  Turn& operator=(const Turn&) = delete;
  // A waiting process then gets the lock of an unlinked file, finds the index, and at worst unlinks the file of
  // another.
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
  if (index) return {.file = std::move(file), .index = std::move(*index)};
  const std::string shared = shared_path(options.index_folder, identity, *file);
  std::error_code none;
  if (!std::filesystem::exists(path, none)) index = load_shared(shared, identity);
  if (index) {
    keep({path}, identity, *index);
  } else {
    index = format.index(*file);
    keep({path, shared}, identity, *index);
  }
  return {.file = std::move(file), .index = std::move(*index)};
}

void fail_changed_shard(const std::string& entry) {
  throw StorageUnavailable(text(entry,
                                ": its header is not the one that was indexed. The file has changed since, or the "
                                "indices belong to other files. Do not change shards while a run reads them, and "
                                "remove the folder of indices."));
}

}  // namespace libtrain::data::detail
