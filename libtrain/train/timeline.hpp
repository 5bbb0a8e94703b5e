#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include <libtrain/base/trace.hpp>
#include <libtrain/comm/communicator.hpp>
#include <libtrain/observe/trace_buffer.hpp>

namespace libtrain {

struct TimelineOptions {
  TraceBufferLimits limits = {};
  /// The clock of the spans.
  std::function<TraceSink::Clock::time_point()> now = TraceSink::Clock::now;
};

/// The spans of all ranks on one clock: collects each rank's spans and writes one file for chrome://tracing and
/// https://ui.perfetto.dev (see ChromeTraceFile).
///
///     Timeline timeline{communicator};
///     GradientSynchronizer synchronizer{*model, communicator, {.trace = &timeline.sink()}};
///     ...
///     timeline.write("timeline.json");
///
/// Clocks: the hosts' clocks start at different times and run at slightly different rates. The constructor and write()
/// compare every rank's clock with rank 0's: both read their clock before and after a barrier, which no rank leaves
/// before all have arrived, so the difference lies in an interval as long as the two ranks' barriers together. The
/// shortest of 20 barriers is used: the estimate is the middle of its interval, and half its length bounds the error,
/// about the time of a barrier (microseconds inside a host, tens of microseconds between hosts). Between the two
/// comparisons the difference is interpolated. Times in the file count from the construction.
///
/// Belongs to the thread that uses the communicator, which must outlive it; the sink takes spans from any thread.
class Timeline {
 public:
  /// All ranks must call it.
  explicit Timeline(Communicator& communicator, TimelineOptions options = {});

  Timeline(const Timeline&) = delete;  // callers keep the address of sink()
  Timeline& operator=(const Timeline&) = delete;

  TraceSink& sink() { return buffer_; }

  /// The largest error of this rank's times in the file against rank 0's clock, if both clocks run at constant rates.
  std::chrono::nanoseconds clock_uncertainty() const { return std::chrono::nanoseconds(uncertainty_ns_); }

  /// Checks that rank 0 can create `file`, before the run has taken hours. All ranks must call it; all throw the same
  /// EnvironmentError if it cannot.
  void require_writable(const std::filesystem::path& file);

  /// Writes the spans of all ranks so far to `file` on rank 0. All ranks must call it; if the file cannot be written,
  /// all throw the same EnvironmentError and the file is unchanged. Ranks hold the spans of one other rank at a time.
  void write(const std::filesystem::path& file);

  /// Writes only this rank's spans, without communication, for example after a failure. Drift of the clocks since the
  /// construction is not corrected. Throws EnvironmentError.
  void write_local(const std::filesystem::path& file) const;

 private:
  /// The offset from this rank's clock to rank 0's, at a time on this rank's clock.
  struct ClockOffset {
    std::int64_t at_ns = 0;
    std::int64_t offset_ns = 0;
    std::int64_t uncertainty_ns = 0;
    std::int64_t begin_ns = 0;  ///< rank 0's clock at the start of the measurement
  };

  ClockOffset measure_clock_offset();
  Trace trace_until(const ClockOffset& last) const;

  Communicator& communicator_;
  TimelineOptions options_;
  TraceBuffer buffer_;
  ClockOffset first_;
  std::int64_t uncertainty_ns_ = 0;
};

}  // namespace libtrain
