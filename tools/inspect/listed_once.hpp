#pragma once

#include <memory>
#include <string>
#include <vector>

#include <libtrain/data/storage/storage.hpp>

namespace libtrain::inspect {

/// A storage that is listed when it is made, and not again: in an object store that takes minutes for millions of
/// files, and what opens a data set asks for the list, as what describes it does.
class ListedOnce final : public data::Storage {
 public:
  /// Throws as Storage::list.
  explicit ListedOnce(std::shared_ptr<const data::Storage> storage);

  /// All files.
  const std::vector<data::FileInfo>& files() const { return files_; }

  const std::string& name() const override { return storage_->name(); }
  std::string identity() const override { return storage_->identity(); }
  std::unique_ptr<const data::File> open(const std::string& path) const override { return storage_->open(path); }
  data::FileInfo info(const std::string& path) const override { return storage_->info(path); }
  std::vector<data::FileInfo> list(const std::string& folder) const override;
  std::vector<std::string> folders(const std::string& folder) const override { return storage_->folders(folder); }

 private:
  std::shared_ptr<const data::Storage> storage_;
  std::vector<data::FileInfo> files_;
};

}  // namespace libtrain::inspect
