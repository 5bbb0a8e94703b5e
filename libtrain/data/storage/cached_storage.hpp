#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <libtrain/data/storage/content_hash.hpp>
#include <libtrain/data/storage/file_cache.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data {

/// A remote storage whose files are read from a FileCache: open() returns the local copy, and fetches it first if
/// necessary.
///
/// Each process keeps the size and version of a file from the listing or the first request, so that it sends one
/// request per file and not one per open(). If a file has changed by the time it must be fetched again, open() throws
/// once, and the next open() takes the new version. Any thread may call it, several at once.
class CachedStorage : public Storage {
 public:
  /// Throws UsageError if either is null.
  CachedStorage(std::shared_ptr<const Storage> remote, std::shared_ptr<FileCache> cache);

  const std::string& name() const override { return remote_->name(); }
  std::string identity() const override { return remote_->identity(); }
  std::string local_identity() const override { return remote_->local_identity(); }
  std::unique_ptr<const File> open(const std::string& path) const override;
  FileInfo info(const std::string& path) const override;
  std::vector<FileInfo> list(const std::string& folder) const override;
  std::optional<std::vector<std::string>> folders(const std::string& folder) const override {
    return remote_->folders(folder);
  }

  /// The version of `path` that open() returns. Throws as info() does.
  CacheKey key_of(const std::string& path) const;

  /// Whether key_of() returns without a request to the remote storage.
  bool knows(const std::string& path) const;

  const Storage& remote() const { return *remote_; }
  FileCache& cache() const { return *cache_; }

 private:
  CacheKey remember(const FileInfo& file) const;
  void forget(const std::string& path) const;

  const std::shared_ptr<const Storage> remote_;
  const std::shared_ptr<FileCache> cache_;
  mutable std::mutex mutex_;
  /// Key: the hash of the path, which takes less memory for millions of paths.
  mutable std::unordered_map<ContentHash, CacheKey> keys_;
};

}  // namespace libtrain::data
