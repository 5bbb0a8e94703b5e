#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace libtrain {

/// Receives spans of what a rank did. Code that reports spans holds a TraceSink pointer; while the pointer is null,
/// nothing is measured or formatted.
class TraceSink {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~TraceSink() = default;

  /// Reports work that lasted from `begin` to `end`, such as ("reduce", "bucket 3", ...). Spans of one `lane` are drawn
  /// in one row: "compute", "communication", "data". `detail` is free text, such as the names of a bucket's parameters.
  /// Any thread; never throws.
  virtual void span(std::string_view lane, std::string_view name, Clock::time_point begin, Clock::time_point end,
                    std::string_view detail = {}) noexcept = 0;
};

/// A span from construction to destruction; without a sink it costs one comparison. `lane` and `name` must outlive it.
class TraceSpan {
 public:
  TraceSpan(TraceSink* sink, std::string_view lane, std::string_view name)
      : sink_(sink),
        lane_(lane),
        name_(name),
        begin_(sink ? TraceSink::Clock::now() : TraceSink::Clock::time_point{}) {}
  ~TraceSpan() {
    if (sink_ != nullptr) sink_->span(lane_, name_, begin_, TraceSink::Clock::now());
  }
  TraceSpan(const TraceSpan&) = delete;  // one span, one end
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  TraceSink* const sink_;
  const std::string_view lane_;
  const std::string_view name_;
  const TraceSink::Clock::time_point begin_;
};

}  // namespace libtrain
