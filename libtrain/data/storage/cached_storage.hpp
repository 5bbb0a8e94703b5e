#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <libtrain/data/storage/content_hash.hpp>
#include <libtrain/data/storage/file_cache.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data {

/// A remote storage whose files are read from a FileCache: open() gives the local copy, and fetches it first where
/// there is none.
///
/// What a file's size and version were when it was listed, or first asked about, counts from then on: so the remote
/// storage is asked once per file and not once per open(), but by every process anew. A file that is changed later and
/// has to be fetched again is an error, which makes the next open() take it as it is then. Any thread may call it,
/// several at once.
class CachedStorage : public Storage {
 public:
  /// Throws UsageError where either is missing.
  CachedStorage(std::shared_ptr<const Storage> remote, std::shared_ptr<FileCache> cache);

  const std::string& name() const override { return remote_->name(); }
  std::string identity() const override { return remote_->identity(); }
  std::unique_ptr<const File> open(const std::string& path) const override;
  FileInfo info(const std::string& path) const override;
  std::vector<FileInfo> list(const std::string& folder) const override;
  std::vector<std::string> folders(const std::string& folder) const override { return remote_->folders(folder); }

  /// The version of `path` that open() gives. Throws as info() does.
  CacheKey key_of(const std::string& path) const;

  /// Whether key_of() gives that version without asking the remote storage.
  bool knows(const std::string& path) const;

  const Storage& remote() const { return *remote_; }
  FileCache& cache() const { return *cache_; }

 private:
  CacheKey remember(const FileInfo& file) const;
  void forget(const std::string& path) const;

  const std::shared_ptr<const Storage> remote_;
  const std::shared_ptr<FileCache> cache_;
  mutable std::mutex mutex_;
  /// By the hash of the path, which takes less memory than a path: there may be millions.
  mutable std::unordered_map<ContentHash, CacheKey> keys_;
};

}  // namespace libtrain::data
