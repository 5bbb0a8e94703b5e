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

/// How far the copying is, whichever process of the node does it.
struct StagingProgress {
  std::uint64_t files_done = 0;   ///< those that were there already included
  std::uint64_t files_total = 0;  ///< 0 as long as the copier lists them
  std::uint64_t bytes_done = 0;
  std::uint64_t bytes_total = 0;
  pid_t copier = 0;  ///< the process that copies

  bool operator==(const StagingProgress&) const = default;
};

/// What is trusted of files that a manifest names. Those of a journal, which may not have reached the disk before the
/// machine went down, are always read and compared with their hashes.
enum class StagedCheck {
  sizes,   ///< those with the length that the manifest tells
  hashes,  ///< those with its length and hash: all is read once
};

struct StagingOptions {
  int threads = 8;
  std::uint64_t free_space_reserve_bytes = std::uint64_t{1} << 30;  ///< that the disk keeps free
  std::uint64_t block_bytes = std::uint64_t{4} << 20;               ///< read from a remote file at once
  StagedCheck check = StagedCheck::sizes;
  std::function<int(const detail::DiskFile&)> sync = detail::sync_file_system;  ///< for tests
  /// A process that waits for the copier gives up when that has not copied a block for so long, nor listed all files,
  /// nor found one that is there already.
  std::chrono::milliseconds stall_timeout = std::chrono::minutes{10};
  /// Called by one thread at a time: in the copier after every block, in those who wait whenever the copier has come
  /// further, or is another one.
  std::function<void(const StagingProgress&)> progress = {};
};

struct StagingResult {
  std::filesystem::path folder = {};  ///< holds the files, and nothing else
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
  std::uint64_t copied_files = 0;  ///< by this process; the others were there or were copied by another one
  std::uint64_t copied_bytes = 0;
  double seconds = 0;

  /// As long as this lives, in any process, stage() changes none of the files: it fails instead.
  std::shared_ptr<const void> in_use = {};
};

/// Copies all files below `folder` of a storage to the local disk, once per node: every process of the node calls it
/// with the same arguments, one copies and the others wait. A process that dies while it copies is followed by one of
/// those who wait, or by the next run; files that are complete are not copied again unless the storage has another
/// version of them by then. Files that the storage has no more are removed. All files have reached the disk before
/// there is a manifest, so that one outlives a power failure.
///
/// `to` is a new or empty folder on a local disk, or one from an earlier call, with
///
///     files/            what is staged, by the paths below `folder`; a link that leads nowhere stands for what cannot
///                       be read
///     manifest          the storage's identity, and the path, size, version and hash of every file; there if and
///                       only if all are, on the disk
///     journal           the manifest as far as it goes, while files are copied
///     partial/          files that are not complete; a rename takes them to files/
///     progress          for those who wait
///     staging.lock      locked by the process that copies
///     in_use.lock       locked by those who read
///
/// Throws UsageError for options that are not positive, and where `to` holds something else; EnvironmentError where the
/// disk has not the space for what is still to be copied (found out before copying), where it refuses, where the
/// storage cannot be read, has no files there, changes meanwhile or has paths that lead out of a folder, where the
/// copier stands still, and where the storage has changed since and another run still reads the former copy.
StagingResult stage(const Storage& from, const std::string& folder, const std::filesystem::path& to,
                    const StagingOptions& options = {});

}  // namespace libtrain::data
