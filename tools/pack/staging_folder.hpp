#pragma once

#include <filesystem>

#include <libtrain/data/storage/disk_file.hpp>

namespace libtrain::pack {

/// A folder for incomplete files, used by one process at a time and removed with the object.
class StagingFolder {
 public:
  /// Creates the folder and its parents. Throws EnvironmentError if that fails or another process uses the folder.
  explicit StagingFolder(std::filesystem::path path);

  StagingFolder(const StagingFolder&) = delete;  // owns the folder
  StagingFolder& operator=(const StagingFolder&) = delete;
  ~StagingFolder();

  const std::filesystem::path& path() const { return path_; }

  /// Removes files that a killed process left in it.
  void clear() const;

  /// Whether the destructor keeps the folder.
  void keep(bool kept) { is_kept_ = kept; }

 private:
  std::filesystem::path path_;
  data::detail::DiskFile lock_;
  bool is_kept_ = false;
};

}  // namespace libtrain::pack
