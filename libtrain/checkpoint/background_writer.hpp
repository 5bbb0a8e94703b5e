#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <thread>

namespace libtrain {

/// Runs one job at a time on a thread of its own: a checkpoint is written while the training goes on. The job owns what
/// it needs, such as copies of the tensors in the functions of its CheckpointPart objects, so that they are written
/// from where they are; it is destroyed when it ends.
///
/// Signals are handled by other threads. Used by one thread at a time.
class BackgroundWriter {
 public:
  BackgroundWriter() = default;
  BackgroundWriter(const BackgroundWriter&) = delete;  // owns the thread
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  /// Waits for the running job, however long it takes: it writes a checkpoint. Logs its error if nothing else has
  /// reported it.
  ~BackgroundWriter();

  /// Waits for the running job, if there is one, and starts this one. Throws what the former one threw, without
  /// starting this one.
  void start(std::function<void()> job);

  /// Whether a job is running. False means that wait() returns, or throws, at once.
  bool is_running() const noexcept { return is_running_; }

  /// Waits for the running job, and throws what it threw.
  void wait();

 private:
  std::thread thread_ = {};
  std::atomic<bool> is_running_ = false;
  std::exception_ptr error_ = {};
};

}  // namespace libtrain
