#include <libtrain/data/storage/cached_storage.hpp>

#include <utility>

#include <libtrain/base/error.hpp>

namespace libtrain::data {

CachedStorage::CachedStorage(std::shared_ptr<const Storage> remote, std::shared_ptr<FileCache> cache)
    : remote_(std::move(remote)), cache_(std::move(cache)) {
  if (!remote_ || !cache_) throw UsageError("A cached storage needs both a remote storage and a cache.");
}

std::unique_ptr<const File> CachedStorage::open(const std::string& path) const {
  try {
    return cache_->open(*remote_, path, key_of(path));
  } catch (const EnvironmentError&) {
    forget(path);
    throw;
  }
}

FileInfo CachedStorage::info(const std::string& path) const {
  return remote_->info(path);
}

std::vector<FileInfo> CachedStorage::list(const std::string& folder) const {
  auto files = remote_->list(folder);
  for (const auto& file : files) remember(file);
  return files;
}

CacheKey CachedStorage::key_of(const std::string& path) const {
  {
    const std::lock_guard lock(mutex_);
    const auto found = keys_.find(content_hash(path));
    if (found != keys_.end()) return found->second;
  }
  return remember(remote_->info(path));
}

bool CachedStorage::knows(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  return keys_.contains(content_hash(path));
}

CacheKey CachedStorage::remember(const FileInfo& file) const {
  const auto key = cache_key(remote_->identity(), file);
  const std::lock_guard lock(mutex_);
  keys_[content_hash(file.path)] = key;
  return key;
}

void CachedStorage::forget(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  keys_.erase(content_hash(path));
}

}  // namespace libtrain::data
