#include <libtrain/base/log.hpp>

#include <unistd.h>

#include <mutex>
#include <optional>
#include <utility>

#include <libtrain/base/detail/redact.hpp>
#include <libtrain/base/file_descriptor.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain {
namespace {

struct Logger {
  std::mutex mutex;
  LogSink sink = write_log_to_stderr;
  LogLevel level = LogLevel::info;
  bool configured = false;
  std::string pending_warning;
  int rank = 0;

  void configure(const Environment& environment);
  bool enabled(LogLevel message_level) const;
  void write(LogLevel message_level, std::string_view message);
};

Logger& logger() {
  // Never destroyed: destructors of other static objects and threads that outlive main may still log.
  static auto* const instance = new Logger;
  return *instance;
}

std::optional<LogLevel> parse_level(std::string_view word) {
  if (word == "debug") return LogLevel::debug;
  if (word == "info") return LogLevel::info;
  if (word == "warning") return LogLevel::warning;
  if (word == "error") return LogLevel::error;
  return std::nullopt;
}

void Logger::configure(const Environment& environment) {
  configured = true;
  level = LogLevel::info;
  pending_warning.clear();
  const auto word = environment.get("LIBTRAIN_LOG");
  if (!word) return;
  if (const auto parsed = parse_level(*word)) {
    level = *parsed;
  } else {
    pending_warning = text("LIBTRAIN_LOG is '", *word, "'; it must be debug, info, warning or error. Using info.");
  }
}

bool Logger::enabled(LogLevel message_level) const {
  if (message_level < level) return false;
  return rank == 0 || level == LogLevel::debug || message_level >= LogLevel::warning;
}

std::string prefix_of(int rank, LogLevel level) {
  std::string prefix = rank == 0 ? "libtrain: " : text("libtrain[rank ", rank, "]: ");
  if (level == LogLevel::warning) prefix += "warning: ";
  if (level == LogLevel::error) prefix += "error: ";
  return prefix;
}

std::string lines_of(const std::string& prefix, std::string_view message) {
  while (!message.empty() && (message.back() == '\n' || message.back() == '\r')) message.remove_suffix(1);
  std::string lines = prefix;
  for (const char character : message) {
    if (character == '\r') continue;
    const bool is_control = (static_cast<unsigned char>(character) < 0x20 && character != '\t') || character == 0x7f;
    if (character == '\n') {
      lines += "\n  ";
    } else {
      // File names and peers' messages must not move the cursor of the terminal.
      lines += is_control ? '?' : character;
    }
  }
  lines += '\n';
  return lines;
}

void Logger::write(LogLevel message_level, std::string_view message) {
  sink(message_level, lines_of(prefix_of(rank, message_level), detail::redact(message)));
}

}  // namespace

void log_message(LogLevel level, std::string_view message) noexcept try {
  auto& log = logger();
  const std::lock_guard lock{log.mutex};
  if (!log.configured) log.configure(Environment::of_process());
  if (!log.pending_warning.empty()) {
    const auto warning = std::exchange(log.pending_warning, {});
    if (log.rank == 0) log.write(LogLevel::warning, warning);
  }
  if (log.enabled(level)) log.write(level, message);
} catch (...) {
  // A message that cannot be written must not end the run.
}

void set_log_identity(int rank, int world_size) {
  auto& log = logger();
  const std::lock_guard lock{log.mutex};
  log.rank = world_size > 1 ? rank : 0;
}

void set_log_level(LogLevel level) {
  auto& log = logger();
  const std::lock_guard lock{log.mutex};
  log.configured = true;
  log.level = level;
}

void configure_log(const Environment& environment) {
  auto& log = logger();
  const std::lock_guard lock{log.mutex};
  log.configure(environment);
}

LogSink set_log_sink(LogSink sink) {
  if (!sink) sink = write_log_to_stderr;
  auto& log = logger();
  const std::lock_guard lock{log.mutex};
  return std::exchange(log.sink, std::move(sink));
}

LogSink log_sink() {
  auto& log = logger();
  const std::lock_guard lock{log.mutex};
  return log.sink;
}

void write_log_to_stderr(LogLevel, const std::string& lines) noexcept {
  detail::write_all(STDERR_FILENO, lines);
}

}  // namespace libtrain
