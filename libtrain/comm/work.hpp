#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <optional>

namespace libtrain {

/// When a collective was called on this rank, when it began to run and when it had ended.
struct WorkTimes {
  using Clock = std::chrono::steady_clock;
  Clock::time_point called = {};
  Clock::time_point began = {};
  Clock::time_point ended = {};

  double seconds_running() const { return std::chrono::duration<double>(ended - began).count(); }
};

namespace detail {

/// How long a communicator that is destroyed waits for what is under way. When an exception unwinds, the peers may
/// never come to what this rank has still called.
inline std::chrono::milliseconds drain_time() {
  return std::chrono::milliseconds(std::uncaught_exceptions() > 0 ? 200 : 5000);
}

/// What a Work refers to: a collective that has been called and may not have ended.
class Pending {
 public:
  virtual ~Pending() = default;
  Pending() = default;
  Pending(const Pending&) = delete;  // one collective, one state
  Pending& operator=(const Pending&) = delete;

  virtual void wait() = 0;
  virtual bool done() = 0;

  /// Empty until it has ended, and where the backend does not know.
  virtual std::optional<WorkTimes> times() { return {}; }
};

}  // namespace detail

/// A collective under way: its result is there when wait() has returned, and not before. Copies refer to the same one.
/// Any thread may wait. Dropping it does not cancel it, and the tensors it was given stay alive until it has ended; but
/// it cannot be waited for any more, which a communicator of the host reports as a warning.
class [[nodiscard]] Work {
 public:
  /// Already done.
  Work() = default;
  explicit Work(std::shared_ptr<detail::Pending> pending) : pending_(std::move(pending)) {}

  /// Returns when the result may be used: on the host when it is in place, on a GPU when the caller's current stream
  /// has been made to wait for it. Throws what the collective failed with, or CommunicationError when its deadline has
  /// passed.
  void wait() {
    if (pending_) pending_->wait();
  }

  bool done() const { return !pending_ || pending_->done(); }

  /// Empty until it has ended, and where the backend does not say: those of GPUs, and a single process.
  std::optional<WorkTimes> times() const { return pending_ ? pending_->times() : std::nullopt; }

 private:
  std::shared_ptr<detail::Pending> pending_;
};

}  // namespace libtrain
