#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include <libtrain/data/storage/disk_file.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data {

/// Progress of the copying on this node, in whichever process it runs.
struct StagingProgress {
  std::uint64_t files_done = 0;   ///< including those that an earlier call copied
  std::uint64_t files_total = 0;  ///< 0 while the copier lists the files
  std::uint64_t bytes_done = 0;
  std::uint64_t bytes_total = 0;
  pid_t copier = 0;  ///< process id of the copier

  bool operator==(const StagingProgress&) const = default;
};

struct StagingOptions {
  int threads = 8;
  std::uint64_t free_space_reserve_bytes = std::uint64_t{1} << 30;              ///< stays free on the disk
  std::uint64_t block_bytes = std::uint64_t{4} << 20;                           ///< size of one read from a remote file
  std::function<int(const detail::DiskFile&)> sync = detail::sync_file_system;  ///< for tests
  /// A process that waits for the copier fails if the copier makes no progress for this long: no block copied, no
  /// existing file checked.
  std::chrono::milliseconds stall_timeout = std::chrono::minutes{10};
  /// The same limit while the copier lists the files, of which it publishes no progress.
  std::chrono::milliseconds list_timeout = std::chrono::hours{2};
  /// The same limit while the copier syncs the files to the disk, which makes no visible progress.
  std::chrono::milliseconds sync_timeout = std::chrono::hours{2};
  /// The processes of a run call stage() within this time of each other. A process that has waited for the copier takes
  /// its copy if the copier began to list the files at most this long before the process called stage(). Otherwise the
  /// copier belongs to an earlier run, and the process lists the files again and copies those that have changed.
  std::chrono::milliseconds start_spread = std::chrono::minutes{1};
  /// Called by one thread at a time: in the copier after every block, in a waiting process when the copier has made
  /// progress or begins to sync, or another process has become the copier.
  std::function<void(const StagingProgress&)> progress = {};
};

struct StagingResult {
  std::filesystem::path folder = {};  ///< contains the files, and nothing else
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
  std::uint64_t copied_files = 0;  ///< files that this process copied
  std::uint64_t copied_bytes = 0;
  double seconds = 0;

  /// While this exists in any process, stage() does not change the files: it fails instead.
  std::shared_ptr<const void> in_use = {};
};

/// Copies all files below `folder` of a storage to the local disk, once per node: every process of the node calls it
/// with the same arguments, one process copies and the others wait. If the copier dies, a waiting process or the next
/// run compares the complete files with their hashes and continues. A complete file is copied again only if its version
/// in the storage has changed; outdated files, and files that the storage no longer has, are removed before the free
/// space is checked. All files are synced to the disk before the manifest is created: it is valid after a power
/// failure, and only the lengths of its files are compared.
///
/// `to` is a new or empty folder on a local disk, or a folder from an earlier call, which contains
///
///     files/            the staged files, by their paths below `folder`; a broken link stands for an unreadable entry
///     manifest          the storage's identity, and the path, size, version and hash of every file; exists if and only
///                       if all files are complete and synced to the disk
///     journal           the part of the manifest for the files copied so far
///     partial/          incomplete files; a rename moves them to files/
///     progress          read by waiting processes
///     staging.lock      locked by the copier
///     in_use.lock       locked by runs that read the files
///
/// Throws UsageError for options that are not positive, and if `to` contains other files; EnvironmentError if the disk
/// is too small for the files that are still to be copied (checked before copying) or fails; if the storage cannot be
/// read, has no files there, changes during the copying, or lists paths that lead out of a folder; if the copier
/// stalls; and if the storage has changed since the last call and another run still reads the previous copy.
StagingResult stage(const Storage& from, const std::string& folder, const std::filesystem::path& to,
                    const StagingOptions& options = {});

}  // namespace libtrain::data
