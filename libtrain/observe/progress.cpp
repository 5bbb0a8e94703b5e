#include <libtrain/observe/progress.hpp>

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

namespace libtrain {
namespace {

constexpr int kUsualColumns = 80;
constexpr std::string_view kClearLine = "\r\x1b[K";

// 0 if the file is not a terminal, or the terminal does not report its width.
int terminal_columns(int file_descriptor) {
  winsize size{};
  return ::ioctl(file_descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

// isatty() is not enough: Open MPI connects the output of every rank to a terminal without a size, even if mpirun's own
// output goes to a file.
Progress::Output resolve(Progress::Output output, int file_descriptor) {
  if (output != Progress::Output::automatic) return output;
  return terminal_columns(file_descriptor) > 0 ? Progress::Output::bar : Progress::Output::lines;
}

}  // namespace

Progress::Progress() : Progress(Options{}) {}

Progress::Progress(Options options) : options_(std::move(options)) {
  options_.output = resolve(options_.output, options_.file_descriptor);
  epoch_start_ = last_shown_ = options_.now();
  if (options_.output != Output::bar) return;
  former_sink_ = log_sink();
  set_log_sink([this](LogLevel level, const std::string& lines) {
    const std::lock_guard lock{mutex_};
    const bool was_shown = bar_is_shown_;
    clear_bar();
    former_sink_(level, lines);
    if (was_shown) draw_bar();
  });
}

Progress::~Progress() {
  if (former_sink_) set_log_sink(former_sink_);
  clear_bar();
}

void Progress::begin_epoch(const Epoch& epoch) {
  const std::lock_guard lock{mutex_};
  state_ = {
      .epoch = epoch.number, .epochs = epoch.count, .step = epoch.first_step, .steps = epoch.steps, .figures = {}};
  first_step_ = epoch.first_step;
  epoch_start_ = options_.now();
  if (options_.output != Output::bar) return;
  last_shown_ = epoch_start_;
  draw_bar();
}

void Progress::update(std::int64_t step, std::vector<ProgressFigure> figures) {
  const std::lock_guard lock{mutex_};
  if (options_.output == Output::quiet) return;
  state_.step = step;
  if (!figures.empty()) state_.figures = std::move(figures);
  const auto now = options_.now();
  const bool is_bar = options_.output == Output::bar;
  if (now - last_shown_ < (is_bar ? options_.redraw_interval : options_.line_interval)) return;
  last_shown_ = now;

  const auto done = step - first_step_;
  const double elapsed_s = seconds_since(epoch_start_);
  state_.eta_s = done > 0 ? elapsed_s / static_cast<double>(done) * static_cast<double>(state_.steps - step) : -1.0;
  if (is_bar) {
    draw_bar();
  } else {
    write(progress_plain_line(state_) + "\n");
  }
}

void Progress::end_epoch(std::vector<ProgressFigure> figures) {
  const std::lock_guard lock{mutex_};
  if (options_.output == Output::quiet) return;
  if (!figures.empty()) state_.figures = std::move(figures);
  clear_bar();
  write(progress_end_line(state_, seconds_since(epoch_start_)) + "\n");
  last_shown_ = options_.now();
}

void Progress::print(std::string_view line) {
  const std::lock_guard lock{mutex_};
  if (options_.output == Output::quiet) return;
  const bool was_shown = bar_is_shown_;
  clear_bar();
  write(std::string{line} + "\n");
  if (was_shown) draw_bar();
}

void Progress::write(std::string_view bytes) {
  while (!bytes.empty() && options_.output != Output::quiet) {
    const auto written = ::write(options_.file_descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) return;
    if (written <= 0) {
      options_.output = Output::quiet;
      return;
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void Progress::clear_bar() {
  if (bar_is_shown_) write(kClearLine);
  bar_is_shown_ = false;
}

void Progress::draw_bar() {
  // Some terminals wrap a line that fills the last column.
  write(std::string{kClearLine} + progress_bar_line(state_, columns() - 1));
  bar_is_shown_ = true;
}

int Progress::columns() const {
  if (options_.columns) return options_.columns();
  const int columns = terminal_columns(options_.file_descriptor);
  return columns > 0 ? columns : kUsualColumns;
}

double Progress::seconds_since(Clock::time_point start) const {
  return std::chrono::duration<double>(options_.now() - start).count();
}

}  // namespace libtrain
