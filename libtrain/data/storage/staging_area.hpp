#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>

#include <libtrain/data/storage/disk_file.hpp>
#include <libtrain/data/storage/staging.hpp>

namespace libtrain::data::detail {

/// The folder that stage() fills, and who fills it.
class StagingArea {
 public:
  /// Makes the folder. Throws UsageError where it holds what stage() did not put there, DiskError.
  explicit StagingArea(const std::filesystem::path& root);

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path files() const { return root_ / "files"; }
  std::filesystem::path partial() const { return root_ / "partial"; }
  std::filesystem::path manifest() const { return root_ / "manifest"; }
  std::filesystem::path journal() const { return root_ / "journal"; }
  std::filesystem::path users() const { return root_ / "in_use.lock"; }

  /// Waits until no other process copies; the caller is the copier then, as long as the result is open. `on_progress`,
  /// if any, is told what the copier does. Throws EnvironmentError where that has done nothing for `stall_timeout`.
  DiskFile wait_for_turn(std::chrono::milliseconds stall_timeout,
                         const std::function<void(const StagingProgress&)>& on_progress) const;

  /// Shows those who wait how far the copier, which is this process, has come. `source` tells whose files a complete
  /// copy holds.
  void publish(const StagingProgress& progress, std::uint64_t source = 0) const noexcept;

  /// Of the last publish(): 0 where the copy is not complete.
  std::uint64_t published_source() const;

 private:
  StagingProgress published() const;

  const std::filesystem::path root_;
  DiskFile progress_;
};

}  // namespace libtrain::data::detail
