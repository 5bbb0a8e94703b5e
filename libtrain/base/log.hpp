#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <libtrain/base/environment.hpp>

namespace libtrain {

enum class LogLevel { debug, info, warning, error };

/// Writes a message to standard error as `libtrain: message`, or `libtrain[rank 3]: message` on ranks other than 0,
/// with "warning: " or "error: " before the message. Further lines of a message are indented, secrets are masked (see
/// `redact`), and the whole message is one write(2). Any thread may log; logging never throws.
///
/// Rank 0 logs messages at or above the process's level (info unless LIBTRAIN_LOG sets another); other ranks log of
/// these only warnings and errors. At level debug every rank logs every message.
void log_message(LogLevel level, std::string_view message) noexcept;

inline void log_debug(std::string_view message) noexcept {
  log_message(LogLevel::debug, message);
}
inline void log_info(std::string_view message) noexcept {
  log_message(LogLevel::info, message);
}
inline void log_warning(std::string_view message) noexcept {
  log_message(LogLevel::warning, message);
}
inline void log_error(std::string_view message) noexcept {
  log_message(LogLevel::error, message);
}

/// Sets the rank that messages name. Before the first call, messages are those of a single process.
void set_log_identity(int rank, int world_size);

/// The level of this process; overrides LIBTRAIN_LOG.
void set_log_level(LogLevel level);

/// Sets the level from LIBTRAIN_LOG (debug, info, warning or error) in `environment`. Any other value causes one
/// warning on rank 0, and the level is info. The first message does this with the process's own environment.
void configure_log(const Environment& environment);

/// Receives finished messages: prefix, text, and a newline at the end. Called by one thread at a time; it must not log.
using LogSink = std::function<void(LogLevel level, const std::string& lines)>;

/// Sends messages to `sink` from now on and returns the previous sink, which does not run any more when this returns.
/// An empty sink means `write_log_to_stderr`.
LogSink set_log_sink(LogSink sink);

/// The current sink; a new sink may forward messages to it.
LogSink log_sink();

/// The default sink.
void write_log_to_stderr(LogLevel level, const std::string& lines) noexcept;

}  // namespace libtrain
