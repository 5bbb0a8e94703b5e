#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include <libtrain/observe/record.hpp>

namespace libtrain {

/// Appends records to a file, one JSON object a line, each with "event" and "time". By convention a run writes the
/// events `run`, `step`, `epoch`, `evaluation` and, last, `summary`.
///
/// A line is in the file as a whole or not at all: it goes out as one write(2) on a file opened for appending, and what
/// a failed write left behind is cut off again, as is a line without an end that a killed process left there.
/// Any thread may write.
class MetricsWriter {
 public:
  /// What becomes of a second run with the same directory, while the first one writes.
  enum class InUse {
    refused,
    shared,  ///< it writes, too: lines stay whole, and "run_id" says whose they are
  };

  /// Opens `directory`/metrics.jsonl, creating both where they are missing; records are added to those already there,
  /// each with "run_id" unless that is empty. Throws EnvironmentError with the file's name and the system's reason, and
  /// where another MetricsWriter has the file, of this process or another, of this host or, on a file system with locks
  /// across hosts, another: from its latest `run` event it names that run. A file system without locks is a warning.
  explicit MetricsWriter(const std::filesystem::path& directory, std::string run_id = {},
                         InUse in_use = InUse::refused);

  /// Throws that error now, and creates and changes nothing.
  static void require_free(const std::filesystem::path& directory);

  /// Opens a file of any name, without a lock: for `--json FILE`.
  static MetricsWriter to_file(const std::filesystem::path& file);

  /// Accepts and drops everything: for ranks other than 0.
  static MetricsWriter disabled();

  MetricsWriter(MetricsWriter&&) noexcept;
  MetricsWriter& operator=(MetricsWriter&&) noexcept;
  ~MetricsWriter();

  /// Adds one line stamped with the present time. Throws EnvironmentError where it cannot be written, for example
  /// because the disk is full; the lines before it stay, and writing may be tried again.
  void write(const Record& record);

  /// Waits until all lines are on the disk (fsync). Throws EnvironmentError.
  void sync();

  bool is_disabled() const { return file_ == nullptr; }

 private:
  class File;

  explicit MetricsWriter(std::unique_ptr<File> file);

  std::unique_ptr<File> file_;  // null where disabled
  std::string run_id_;
};

}  // namespace libtrain
