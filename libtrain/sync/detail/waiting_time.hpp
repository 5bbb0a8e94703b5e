#pragma once

#include <deque>
#include <optional>

#include <libtrain/base/clock.hpp>
#include <libtrain/comm/detail/device/stream_mark.hpp>

namespace libtrain::detail {

/// The time that computation has waited between begin() and end() of each round: on the CPU that of the host; on a
/// device that of the current stream, since the host does not wait there. Used by one thread at a time.
class WaitingTime {
 public:
  explicit WaitingTime(const at::Device& device) : device_(device) {}

  void begin() {
    if (device_.is_cpu()) {
      stopwatch_.restart();
    } else {
      began_.emplace(current_stream(device_), c10::EventFlag::BACKEND_DEFAULT);
    }
  }

  void end() {
    if (device_.is_cpu()) {
      seconds_ += stopwatch_.seconds();
    } else if (began_) {
      intervals_.push_back({*std::move(began_), StreamMark(current_stream(device_), c10::EventFlag::BACKEND_DEFAULT)});
      began_.reset();
      collect();
    }
  }

  /// Of the rounds that the device has ended. Does not wait for it.
  double seconds() {
    collect();
    return seconds_;
  }

 private:
  struct Interval {
    StreamMark began;
    StreamMark ended;
  };

  void collect() {
    while (!intervals_.empty() && intervals_.front().ended.is_passed()) {
      seconds_ += intervals_.front().began.milliseconds_until(intervals_.front().ended) / 1000;
      intervals_.pop_front();
    }
  }

  const at::Device device_;
  double seconds_ = 0;
  Stopwatch stopwatch_;
  std::optional<StreamMark> began_;
  std::deque<Interval> intervals_;
};

}  // namespace libtrain::detail
