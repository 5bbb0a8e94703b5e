#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <optional>

namespace libtrain {

/// When a collective was called on this rank, when it began to run and when it ended.
struct WorkTimes {
  using Clock = std::chrono::steady_clock;
  Clock::time_point called = {};
  Clock::time_point began = {};
  Clock::time_point ended = {};

  double seconds_running() const { return std::chrono::duration<double>(ended - began).count(); }
};

namespace detail {

/// How long the destructor of a communicator waits for pending collectives. During stack unwinding, the peers may never
/// call the collectives that this rank has called.
inline std::chrono::milliseconds drain_time() {
  return std::chrono::milliseconds(std::uncaught_exceptions() > 0 ? 200 : 5000);
}

/// The state behind a Work: a collective that has been called and may not have finished.
class Pending {
 public:
  virtual ~Pending() = default;
  Pending() = default;
  Pending(const Pending&) = delete;  // one collective, one state
  Pending& operator=(const Pending&) = delete;

  virtual void wait() = 0;
  virtual bool done() = 0;

  /// std::nullopt until it has finished, and if the backend does not measure times.
  virtual std::optional<WorkTimes> times() { return {}; }
};

}  // namespace detail

/// A pending collective: its result may be used after wait() has returned. Copies refer to the same collective. Any
/// thread may wait. Dropping the Work does not cancel the collective, and its tensors stay alive until it has finished;
/// but no code can wait for it any more, which a communicator for host memory reports as a warning.
class [[nodiscard]] Work {
 public:
  /// A Work that is already done.
  Work() = default;
  explicit Work(std::shared_ptr<detail::Pending> pending) : pending_(std::move(pending)) {}

  /// Returns when the result may be used: for host memory when it is complete, for a GPU when the caller's current
  /// stream has been made to wait for it. Throws the error of the collective, or CommunicationError if its deadline has
  /// passed.
  void wait() {
    if (pending_) pending_->wait();
  }

  /// Not true of a collective that is recorded into a graph, unless the communicator has failed.
  bool done() const { return !pending_ || pending_->done(); }

  /// std::nullopt until it has finished, and always for a single process and for collectives that are recorded into a
  /// graph. Of a collective on a GPU over NCCL, times of the GPU on the host's clock: asking does not wait for it; over
  /// host memory, those on the host, without the copies to the GPU.
  std::optional<WorkTimes> times() const { return pending_ ? pending_->times() : std::nullopt; }

 private:
  std::shared_ptr<detail::Pending> pending_;
};

}  // namespace libtrain
