#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <libtrain/base/environment.hpp>

namespace libtrain {

enum class LogLevel { debug, info, warning, error };

/// One message to standard error as `libtrain: message`, or `libtrain[rank 3]: message` on ranks other than 0, with
/// "warning: " or "error: " before the message. Further lines of a message are indented, secrets are masked
/// (see `redact`), and the whole is one write(2). Any thread may log; logging never throws.
///
/// Rank 0 speaks from the process's level up (info unless LIBTRAIN_LOG says otherwise), other ranks from warning up.
/// At level debug every rank says everything.
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

/// Whether this process would write a message of `level`: for messages that are costly to make.
bool log_enabled(LogLevel level) noexcept;

/// Says who speaks. Before the first call the process speaks as a single one.
void set_log_identity(int rank, int world_size);

/// The level of this process; overrides LIBTRAIN_LOG.
void set_log_level(LogLevel level);

/// Takes the level from LIBTRAIN_LOG (debug, info, warning or error) in `environment`. Anything else gives one warning
/// on rank 0 and leaves the level at info. The first message does this with the process's own environment.
void configure_log(const Environment& environment);

/// Receives finished messages: prefix, text, and a newline at the end. Called by one thread at a time; it must not log.
using LogSink = std::function<void(LogLevel level, const std::string& lines)>;

/// Sends messages to `sink` from now on and returns the sink that was there. Once this returns, the former sink is not
/// running any more. An empty sink stands for `write_log_to_stderr`.
LogSink set_log_sink(LogSink sink);

/// The sink in use, for a new one to pass messages on to.
LogSink log_sink();

/// The sink a process starts with.
void write_log_to_stderr(LogLevel level, const std::string& lines) noexcept;

}  // namespace libtrain
