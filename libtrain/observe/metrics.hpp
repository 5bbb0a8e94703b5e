#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include <libtrain/observe/record.hpp>

namespace libtrain {

/// Appends records to a file, one JSON object per line, each with "event" and "time". By convention a run writes the
/// events `run`, `step`, `epoch`, `evaluation` and, last, `summary`.
///
/// The file has no partial lines: a line is one write(2) on a file opened for appending, and a partial line that a
/// failed write or a killed process left is removed, unless InUse::shared joins a run that has the file open. Any
/// thread may write.
class MetricsWriter {
 public:
  /// Whether a second run may use the directory while the first one writes.
  enum class InUse {
    refused,
    shared,  ///< both write: lines stay whole, and "run_id" tells them apart
  };

  /// Opens `directory`/metrics.jsonl and creates both if they do not exist; records are appended, each with "run_id"
  /// unless that is empty. Throws EnvironmentError with the file's name and the system's reason, and if another
  /// MetricsWriter has the file open, in this process, in another process, or on another host if the file system
  /// supports such locks; the message names that run. A file system without locks causes a warning.
  explicit MetricsWriter(const std::filesystem::path& directory, std::string run_id = {},
                         InUse in_use = InUse::refused);

  /// Throws that error if another MetricsWriter has the file open; creates and changes nothing.
  static void require_free(const std::filesystem::path& directory);

  /// Opens a file of any name without a lock, for `--json FILE`.
  static MetricsWriter to_file(const std::filesystem::path& file);

  /// Accepts and drops all records, for ranks other than 0.
  static MetricsWriter disabled();

  MetricsWriter(MetricsWriter&&) noexcept;
  MetricsWriter& operator=(MetricsWriter&&) noexcept;
  ~MetricsWriter();

  /// Appends one line with the current time. Throws EnvironmentError if it cannot be written, for example because the
  /// disk is full; the lines before it remain, and the call may be repeated.
  void write(const Record& record);

  /// Waits until all lines are on the disk (fsync). Throws EnvironmentError if that fails.
  void sync();

  bool is_disabled() const { return file_ == nullptr; }

 private:
  class File;

  explicit MetricsWriter(std::unique_ptr<File> file);

  std::unique_ptr<File> file_;  // null if disabled
  std::string run_id_;
};

}  // namespace libtrain
