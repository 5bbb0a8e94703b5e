#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data::detail {

/// A storage, one folder of which has been listed before: the first list(folder) returns `files`, because listing
/// millions of files takes minutes in an object store. Later calls list the storage again, so that the files are not
/// kept in memory.
class ListedStorage final : public Storage {
 public:
  ListedStorage(std::shared_ptr<const Storage> storage, std::string folder, std::vector<FileInfo> files)
      : storage_(std::move(storage)), folder_(std::move(folder)), files_(std::move(files)) {}

  const std::string& name() const override { return storage_->name(); }
  std::string identity() const override { return storage_->identity(); }
  std::string local_identity() const override { return storage_->local_identity(); }
  std::unique_ptr<const File> open(const std::string& path) const override { return storage_->open(path); }
  FileInfo info(const std::string& path) const override { return storage_->info(path); }
  std::optional<std::vector<std::string>> folders(const std::string& folder) const override {
    return storage_->folders(folder);
  }

  std::vector<FileInfo> list(const std::string& folder) const override {
    if (folder != folder_) return storage_->list(folder);
    std::unique_lock lock(mutex_);
    auto files = std::exchange(files_, std::nullopt);
    lock.unlock();
    return files ? std::move(*files) : storage_->list(folder);
  }

 private:
  std::shared_ptr<const Storage> storage_;
  std::string folder_;
  mutable std::mutex mutex_;
  mutable std::optional<std::vector<FileInfo>> files_;
};

}  // namespace libtrain::data::detail
