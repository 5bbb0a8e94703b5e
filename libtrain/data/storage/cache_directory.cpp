#include <libtrain/data/storage/cache_directory.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <system_error>
#include <utility>

#include <libtrain/data/storage/disk_file.hpp>

namespace libtrain::data::detail {

namespace {

namespace fs = std::filesystem;

// Whoever holds an entry's exclusive lock removes it, which takes moments.
constexpr auto kShortWait = std::chrono::seconds{1};

std::vector<StoredEntry> scan(const fs::path& folder) {
  std::vector<StoredEntry> result;
  std::error_code error;
  for (auto file = fs::directory_iterator(folder, error); !error && file != fs::directory_iterator();
       file.increment(error)) {
    const auto key = parse_content_hash(file->path().filename().string());
    struct stat status{};
    if (!key || stat(file->path().c_str(), &status) != 0) continue;
    result.push_back({.key = *key,
                      .bytes = disk_bytes(static_cast<std::uint64_t>(status.st_size)),
                      .last_used = nanoseconds_of(status.st_mtim)});
  }
  if (error) throw_disk_error("list the folder", folder, error.value());
  return result;
}

}  // namespace

CacheDirectory::CacheDirectory(const fs::path& root) : root_(fs::absolute(root)) {
  make_folder(root_ / "entries");
  make_folder(root_ / "fetching");
}

fs::path CacheDirectory::entry_path(const ContentHash& key) const {
  return root_ / "entries" / to_string(key);
}

fs::path CacheDirectory::fetching_path(const ContentHash& key) const {
  return root_ / "fetching" / to_string(key);
}

bool CacheDirectory::has(const ContentHash& key) const {
  return access(entry_path(key).c_str(), F_OK) == 0;
}

DiskFile CacheDirectory::open_entry(const ContentHash& key) const {
  auto file = DiskFile::open(entry_path(key), O_RDONLY);
  if (!file.is_open()) return {};
  const bool is_locked = lock_within(file, LockMode::shared, Deadline::after(kShortWait));
  // Evicted between the open and the lock: the content is still there, but the space is counted as free.
  return is_locked && file.is_linked() ? std::move(file) : DiskFile{};
}

void CacheDirectory::touch(const DiskFile& entry) const {
  set_modification_time(entry, wall_clock_nanoseconds());
}

DiskFile CacheDirectory::claim(const ContentHash& key, const Deadline& deadline, const std::stop_token& stop) const {
  const auto path = fetching_path(key);
  while (true) {
    auto file = open_to_write(path);
    if (!lock_within(file, LockMode::exclusive, deadline, stop)) return {};
    // Who held the lock before may have completed or removed the file: then this is no claim any more.
    if (file.is_at(path)) return file;
  }
}

void CacheDirectory::commit(const ContentHash& key) const {
  const auto path = fetching_path(key);
  if (std::rename(path.c_str(), entry_path(key).c_str()) != 0) throw_disk_error("rename", path, errno);
}

bool CacheDirectory::evict(const ContentHash& key) const {
  const auto path = entry_path(key);
  const auto file = DiskFile::open(path, O_RDONLY);
  return file.is_open() && try_lock(file, LockMode::exclusive) && unlink(path.c_str()) == 0;
}

std::vector<StoredEntry> CacheDirectory::entries() const {
  return scan(root_ / "entries");
}

std::vector<StoredEntry> CacheDirectory::claims() const {
  return scan(root_ / "fetching");
}

}  // namespace libtrain::data::detail
