#pragma once

#include <cstddef>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <libtrain/base/output_file.hpp>
#include <libtrain/observe/trace_buffer.hpp>

namespace libtrain::detail {

/// Writes a file of spans for chrome://tracing and https://ui.perfetto.dev, in the JSON object form of "Trace Event
/// Format" (Google, 2016): a process for each rank, a thread for each lane, a complete event ("ph": "X") for each span
/// with its detail as args.detail. A lane has the same thread number in all processes. Times are microseconds with
/// three decimals. Bytes that are not UTF-8 become U+FFFD.
///
/// The file is complete or absent; a device or a FIFO is written to directly: see OutputFile. Belongs to one thread.
class ChromeTraceFile {
 public:
  /// Starts the file and creates its folder if it does not exist. Throws EnvironmentError with the path and the
  /// system's reason, as do the methods below.
  explicit ChromeTraceFile(std::filesystem::path path);

  /// Throws if the file cannot be created. Creates only the folder.
  static void require_writable(const std::filesystem::path& path);

  /// Adds spans of a rank, in any order; the times of all ranks must be on one clock. May be called repeatedly for a
  /// rank.
  void add(int rank, const Trace& trace);

  /// Flushes the file to the disk and gives it its name, replacing an existing file. The last call.
  void finish();

 private:
  void describe_process(int rank, const Trace& trace);
  std::size_t thread_of(int rank, const std::string& lane);
  void add_metadata(int rank, std::size_t thread, const std::string& what, const std::string& arguments);
  void add_event(const std::string& json);

  OutputFile file_;
  bool has_events_ = false;
  std::vector<std::string> lanes_;                       // thread n + 1 of every process
  std::set<std::pair<int, std::size_t>> named_threads_;  // rank and thread
};

}  // namespace libtrain::detail
