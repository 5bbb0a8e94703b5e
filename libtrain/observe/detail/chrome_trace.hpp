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

/// Writes a file of spans that chrome://tracing and https://ui.perfetto.dev show, in the JSON object form of "Trace
/// Event Format" (Google, 2016): a process for each rank, a thread for each lane, a complete event ("ph": "X") for each
/// span with its detail as args.detail. A lane has the same thread number in all processes. Times are microseconds with
/// three decimals. Bytes that are not UTF-8 become U+FFFD.
///
/// The file is there as a whole or not at all, and a device or a FIFO is written to as it is: see OutputFile.
/// Belongs to one thread.
class ChromeTraceFile {
 public:
  /// Starts the file; makes the folder where it is missing. Throws EnvironmentError with the path and the system's
  /// reason, as do the methods below.
  explicit ChromeTraceFile(std::filesystem::path path);

  /// Throws where the file could not be made; makes the folder, and nothing else.
  static void require_writable(const std::filesystem::path& path);

  /// Adds the spans of a rank, in any order; their times must be on one clock for all ranks. May be called again for
  /// more spans of the same rank.
  void add(int rank, const Trace& trace);

  /// Brings the file to the disk and gives it its name, in place of a file that had it. The last call.
  void finish();

 private:
  void describe_process(int rank, const Trace& trace);
  std::size_t thread_of(int rank, const std::string& lane);
  void add_metadata(int rank, std::size_t thread, const std::string& what, const std::string& arguments);
  void add_event(const std::string& json);

  OutputFile file_;
  bool has_events_ = false;
  std::vector<std::string> lanes_;                       // thread n + 1 of every process
  std::set<std::pair<int, std::size_t>> named_threads_;  // of which rank
};

}  // namespace libtrain::detail
