#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string_view>
#include <vector>

#include <libtrain/base/log.hpp>
#include <libtrain/observe/progress_line.hpp>

namespace libtrain {

/// Shows the progress of training: on a terminal as one line that is redrawn, otherwise as plain lines, at most one
/// every few seconds and one at the end of each epoch.
///
/// While an object with a bar exists, log messages appear above the bar. Any thread may call it. After a write error it
/// shows nothing more: a failure to show progress never ends a run.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  enum class Output {
    automatic,  ///< a bar if the file is a terminal of known width, else plain lines (as under mpirun)
    bar,
    lines,
    quiet,  ///< nothing: `--quiet`, and ranks other than 0
  };

  struct Options {
    int file_descriptor = 2;
    Output output = Output::automatic;
    std::chrono::milliseconds redraw_interval{100};
    std::chrono::milliseconds line_interval{5000};
    std::function<Clock::time_point()> now = Clock::now;
    std::function<int()> columns;  ///< empty: the terminal's width, read at every redraw
  };

  struct Epoch {
    int number = 1;  ///< counted from 1
    int count = 0;   ///< 0: unknown
    std::int64_t steps = 0;
    std::int64_t first_step = 0;  ///< steps that were done before, if an epoch is resumed
  };

  Progress();
  explicit Progress(Options options);

  Progress(const Progress&) = delete;  // the logger holds its address
  Progress& operator=(const Progress&) = delete;

  /// Clears an unfinished bar and restores the log's previous sink.
  ~Progress();

  void begin_epoch(const Epoch& epoch);

  /// Reports that `step` steps of this epoch are done. Cheap enough for every step: it formats text only if it is time
  /// to show it.
  void update(std::int64_t step, std::vector<ProgressFigure> figures = {});

  /// Writes the epoch's last line, with these figures (such as validation results) or those of the last update.
  void end_epoch(std::vector<ProgressFigure> figures = {});

  /// Writes a line, above the bar if there is one.
  void print(std::string_view line);

 private:
  void write(std::string_view bytes);
  void clear_bar();
  void draw_bar();
  int columns() const;
  double seconds_since(Clock::time_point start) const;

  Options options_;
  std::mutex mutex_;
  ProgressState state_;
  std::int64_t first_step_ = 0;
  Clock::time_point epoch_start_;
  Clock::time_point last_shown_;
  bool bar_is_shown_ = false;
  LogSink former_sink_;  // empty if this object installed none
};

}  // namespace libtrain
