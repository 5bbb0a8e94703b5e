#pragma once

#include <filesystem>

#include <libtrain/data/storage/disk_file.hpp>

namespace libtrain::pack {

/// A folder of one process at a time, for files that are not complete yet; it goes with the object.
class StagingFolder {
 public:
  /// Makes the folder and those above it. Throws EnvironmentError where that fails, or where another process uses it.
  explicit StagingFolder(std::filesystem::path path);

  StagingFolder(const StagingFolder&) = delete;  // owns the folder
  StagingFolder& operator=(const StagingFolder&) = delete;
  ~StagingFolder();

  const std::filesystem::path& path() const { return path_; }

  /// Removes what a process that was killed has left in it.
  void clear() const;

  /// Whether to leave it where it is at the end.
  void keep(bool kept) { is_kept_ = kept; }

 private:
  std::filesystem::path path_;
  data::detail::DiskFile lock_;
  bool is_kept_ = false;
};

}  // namespace libtrain::pack
