#pragma once

#include <string>
#include <utility>
#include <vector>

#include <libtrain/base/log.hpp>

namespace libtrain::test {

/// While it lives, messages go to `sink`.
class ScopedLogSink {
 public:
  explicit ScopedLogSink(LogSink sink) : former_(set_log_sink(std::move(sink))) {}
  ScopedLogSink(const ScopedLogSink&) = delete;  // one sink of the process
  ScopedLogSink& operator=(const ScopedLogSink&) = delete;
  ~ScopedLogSink() { set_log_sink(former_); }

 private:
  LogSink former_;
};

/// While it lives, nothing is logged.
class SilentLog {
 private:
  ScopedLogSink sink_{[](LogLevel, const std::string&) {}};
};

/// What is logged while it lives, of level `least` and above, instead of on standard error. Other threads may log, but
/// not while it is read.
class CapturedLog {
 public:
  explicit CapturedLog(LogLevel least = LogLevel::debug)
      : sink_([this, least](LogLevel level, const std::string& lines) {
          if (level >= least) lines_.push_back(lines);
        }) {}

  /// One entry a message.
  const std::vector<std::string>& lines() const { return lines_; }

  void clear() { lines_.clear(); }

 private:
  mutable std::vector<std::string> lines_;  // the sink adds to those of a constant object too
  ScopedLogSink sink_;
};

}  // namespace libtrain::test
