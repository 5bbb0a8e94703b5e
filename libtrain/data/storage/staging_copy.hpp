#pragma once

#include <cstdint>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include <libtrain/data/storage/disk_file.hpp>
#include <libtrain/data/storage/staging.hpp>
#include <libtrain/data/storage/staging_area.hpp>
#include <libtrain/data/storage/staging_manifest.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data::detail {

/// A file to stage, or an empty folder.
struct StagingTask {
  FileInfo remote = {};
  std::string path = {};  ///< below the staged folder
};

/// The files of a storage below `folder` and its empty folders, each of which may be a class, in the order of their
/// paths. Throws EnvironmentError where there is no file or where a path leads out of the folder.
std::vector<StagingTask> list_tasks(const Storage& from, const std::string& folder);

/// Copies files with several threads and notes each in the journal as soon as it is in its place.
class StagingCopy {
 public:
  /// `done` and `journal`: what is there from before. All but `done` must outlive it.
  StagingCopy(const Storage& from, const StagingArea& area, const DiskFile& journal, const StagingOptions& options,
              const StagingProgress& done);

  /// Throws the first error of any thread, after all have stopped.
  void run(const std::vector<StagingTask>& tasks);

 private:
  void copy(const StagingTask& task, int worker, const std::stop_token& stop);
  void note(const std::string& journal_line);
  void add_progress(std::uint64_t files, std::uint64_t bytes);

  const Storage& from_;
  const StagingArea& area_;
  const DiskFile& journal_;
  const StagingOptions& options_;
  std::mutex mutex_;  // of what follows
  std::uint64_t journal_bytes_ = 0;
  StagingProgress progress_;
};

}  // namespace libtrain::data::detail
