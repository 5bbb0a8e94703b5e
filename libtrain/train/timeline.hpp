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

/// What all ranks did, on one clock: collects each rank's spans and writes one file that chrome://tracing and
/// https://ui.perfetto.dev show (see ChromeTraceFile).
///
///     Timeline timeline{communicator};
///     GradientSynchronizer synchronizer{*model, communicator, {.trace = &timeline.sink()}};
///     ...
///     timeline.write("timeline.json");
///
/// Clocks: hosts count from different moments and not quite equally fast. The constructor and write() compare every
/// rank's clock with rank 0's: both read theirs before and after a barrier, which no rank leaves before all have
/// arrived, so that the difference lies in an interval as long as the two ranks' barriers together. The shortest of 20
/// barriers counts, the middle of its interval is taken, and half of it bounds the error: what a barrier takes, which
/// is microseconds inside a host and tens of them between hosts. In between the difference is interpolated. Times in
/// the file count from the construction.
///
/// Belongs to the thread that uses the communicator, which must outlive it; the sink takes spans from any thread.
class Timeline {
 public:
  /// All ranks must call it.
  explicit Timeline(Communicator& communicator, TimelineOptions options = {});

  Timeline(const Timeline&) = delete;  // sinks are referred to
  Timeline& operator=(const Timeline&) = delete;

  TraceSink& sink() { return buffer_; }

  /// How far this rank's times in the file may be from rank 0's clock at most, where both run evenly.
  std::chrono::nanoseconds clock_uncertainty() const { return std::chrono::nanoseconds(uncertainty_ns_); }

  /// Finds out whether rank 0 could make `file`, before the run has taken hours. All ranks must call it; all throw the
  /// same EnvironmentError where it could not.
  void require_writable(const std::filesystem::path& file);

  /// Rank 0 writes the spans of all ranks so far to `file`, or leaves it as it was. All ranks must call it; all throw
  /// the same EnvironmentError where the file cannot be written. Ranks hold the spans of one other rank at a time.
  void write(const std::filesystem::path& file);

  /// Writes this rank's own spans, without the other ranks, such as when the run has failed. Clocks are then as
  /// different as they have become since the construction. Throws EnvironmentError.
  void write_local(const std::filesystem::path& file) const;

 private:
  /// What to add to this rank's clock for rank 0's, at a time of this rank's.
  struct ClockOffset {
    std::int64_t at_ns = 0;
    std::int64_t offset_ns = 0;
    std::int64_t uncertainty_ns = 0;
    std::int64_t begin_ns = 0;  ///< rank 0's clock when measuring began
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
