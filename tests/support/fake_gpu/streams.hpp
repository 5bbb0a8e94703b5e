#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace libtrain::test::fake {

/// Work for a stream. It refers to device memory by address, not by tensor: what is freed too early is used after the
/// free, as on a GPU.
struct Task {
  std::string name;  ///< for errors
  std::function<void()> run;
  bool internal = false;  ///< the stream counts as idle without it
};

class FakeStream;

/// How far each stream of a recording has come at some point of it.
using RecordedPoint = std::map<const FakeStream*, std::size_t>;

/// The operations of a FakeGraph: for each stream its own in their order, and for each operation those of other streams
/// that come before it. Any thread may use it.
class Recording {
 public:
  explicit Recording(const FakeStream& origin) : origin_(&origin) {}

  void add(const FakeStream& stream, Task task);
  RecordedPoint point_of(const FakeStream& stream);
  void wait_for(const FakeStream& stream, const RecordedPoint& point);

  /// Its streams leave it. Returns the name of an operation that the origin has not waited for, if there is one.
  std::optional<std::string> finish();
  bool is_finished();

  /// Runs all operations, in any order that the streams and events allow: `choose(n)` returns a number below n.
  void run(const std::function<std::size_t(std::size_t)>& choose);

 private:
  struct Operation {
    Task task;
    RecordedPoint after;
  };

  std::mutex mutex_;
  const FakeStream* origin_;
  bool finished_ = false;
  std::map<const FakeStream*, std::vector<Operation>> operations_;
  std::map<const FakeStream*, RecordedPoint> seen_;  // by each stream
};

/// A point in a stream.
class Mark {
 public:
  void pass();
  bool is_passed() const;
  void wait() const;
  std::chrono::steady_clock::time_point time() const;  ///< when it was passed

  /// Set if it was made while its stream was recorded.
  std::shared_ptr<Recording> recording;
  RecordedPoint recorded_point;

 private:
  std::atomic<int> passed_ = 0;
  std::chrono::steady_clock::time_point time_;
};

/// A queue of work and the thread that runs it, which starts with the first work and lives as long as the process.
/// Any thread may use it.
class FakeStream {
 public:
  explicit FakeStream(c10::Stream handle) : handle_(handle) {}
  FakeStream(const FakeStream&) = delete;  // the thread refers to it
  FakeStream& operator=(const FakeStream&) = delete;

  c10::Stream handle() const { return handle_; }

  /// Queues the task, or adds it to the recording.
  void launch(Task task);

  std::shared_ptr<Mark> mark();
  void wait_for(const std::shared_ptr<Mark>& mark);

  bool is_idle();
  void wait_until_idle();

  /// Null unless a FakeGraph records this stream.
  std::shared_ptr<Recording> recording();
  void record_into(std::shared_ptr<Recording> recording);

 private:
  void leave_finished_recording();
  void push(Task task);
  void run();

  const c10::Stream handle_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> queue_;
  std::uint64_t queued_ = 0;
  std::uint64_t finished_ = 0;
  bool started_ = false;
  std::shared_ptr<Recording> recording_;
};

FakeStream& find_stream(const c10::Stream& stream);
FakeStream& current_stream(c10::DeviceIndex device);
/// Pools are round robin: one for computation, the other (of high priority) for communication.
enum class Pool { normal, high_priority };
FakeStream& stream_from_pool(c10::DeviceIndex device, Pool pool);
FakeStream& new_stream(c10::DeviceIndex device);

/// The calling thread's.
c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex device);
void set_current_stream(const c10::Stream& stream);

/// Both wait, count as a host synchronisation and throw the first error of the device since the last report.
void synchronize_stream(const c10::Stream& stream);
void synchronize_device(c10::DeviceIndex device);
void synchronize_mark(const Mark& mark, c10::DeviceIndex device);

/// Throws the first error of the device's work since the last call.
void throw_device_error(c10::DeviceIndex device);

void count_operation();

/// Throws where the calling thread must not wait: see NoHostSynchronization and FakeGraph. Null: no stream in
/// particular.
void count_host_synchronization(const std::string& what, FakeStream* stream);

}  // namespace libtrain::test::fake
