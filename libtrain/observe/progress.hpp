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

/// Shows how far training is: on a terminal as one line that redraws itself, elsewhere as plain lines, at most one
/// every few seconds and one at the end of each epoch.
///
/// While it lives on a terminal, log messages appear above the bar. Any thread may call it. A stream that cannot be
/// written to any more silences it: showing progress never ends a run.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  enum class Output {
    automatic,  ///< a bar where the file is a terminal of known width, else plain lines (so under mpirun)
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
    std::function<int()> columns;  ///< empty: the terminal is asked at every redraw
  };

  struct Epoch {
    int number = 1;  ///< as shown: callers that count from 0 add 1
    int count = 0;   ///< 0: not known
    std::int64_t steps = 0;
    std::int64_t first_step = 0;  ///< steps done before, where an epoch is resumed in its middle
  };

  Progress();
  explicit Progress(Options options);

  Progress(const Progress&) = delete;  // the logger holds its address
  Progress& operator=(const Progress&) = delete;

  /// Clears an unfinished bar and gives the log its former sink back.
  ~Progress();

  void begin_epoch(const Epoch& epoch);

  /// `step` steps of this epoch are done. Cheap enough for every step: nothing is formatted unless it is due.
  void update(std::int64_t step, std::vector<ProgressFigure> figures = {});

  /// The epoch's last line, with the figures of the last update or those given here (validation results).
  void end_epoch(std::vector<ProgressFigure> figures = {});

  /// Writes a line of its own, above the bar.
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
  LogSink former_sink_;  // empty where this one was not installed
};

}  // namespace libtrain
