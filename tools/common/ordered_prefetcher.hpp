#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

namespace libtrain::tools {

/// Produces the values number first, ..., last - 1 on worker threads and returns them in that order.
///
/// Invariants: the workers claim numbers in order and are never further ahead of the consumer than the window, so at
/// most `window` values exist; slot i % window holds number i from production until the consumer takes it. Without
/// workers the consumer produces each value. A stop request tells `produce` that its value is no longer needed; it may
/// then return any value.
template <typename Value>
class OrderedPrefetcher {
 public:
  using Produce = std::function<Value(std::uint64_t number, const std::stop_token& stop)>;

  OrderedPrefetcher(std::uint64_t first, std::uint64_t last, int workers, std::uint64_t window, Produce produce)
      : produce_(std::move(produce)),
        last_(last),
        threaded_(workers > 0),
        claimed_(first),
        taken_(first),
        slots_(std::max<std::uint64_t>(window, 1)) {
    try {
      for (int i = 0; i < workers; ++i) workers_.emplace_back([this] { work(); });
    } catch (...) {  // no more threads: those that run must not outlive this object
      stop();
      throw;
    }
  }

  OrderedPrefetcher(const OrderedPrefetcher&) = delete;  // threads use its address
  OrderedPrefetcher& operator=(const OrderedPrefetcher&) = delete;
  ~OrderedPrefetcher() { stop(); }

  /// The next value, or std::nullopt after the last. Rethrows an exception of `produce` for that value; after it there
  /// are no more values. Called by one thread at a time.
  std::optional<Value> next() {
    if (taken_ >= last_ || stop_.stop_requested()) return std::nullopt;
    Slot slot = threaded_ ? wait() : run(taken_++);
    if (slot.error) {
      stop();
      std::rethrow_exception(slot.error);
    }
    return std::move(slot.value);
  }

 private:
  struct Slot {
    std::optional<Value> value;
    std::exception_ptr error;
    bool empty() const { return !value && !error; }
  };

  Slot run(std::uint64_t number) {
    Slot slot;
    try {
      slot.value = produce_(number, stop_.get_token());
    } catch (...) {
      slot.error = std::current_exception();
    }
    return slot;
  }

  Slot wait() {
    std::unique_lock lock(mutex_);
    Slot& slot = slots_[taken_ % slots_.size()];
    produced_.wait(lock, [&] { return !slot.empty(); });
    ++taken_;
    room_.notify_one();
    return std::exchange(slot, Slot{});
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      room_.wait(lock,
                 [&] { return stop_.stop_requested() || claimed_ >= last_ || claimed_ - taken_ < slots_.size(); });
      if (stop_.stop_requested() || claimed_ >= last_) return;
      const std::uint64_t number = claimed_++;
      lock.unlock();
      Slot slot = run(number);
      lock.lock();
      slots_[number % slots_.size()] = std::move(slot);
      if (number == taken_) produced_.notify_one();
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stop_.request_stop();
    }
    room_.notify_all();
    for (auto& worker : workers_) {
      if (worker.joinable()) worker.join();
    }
  }

  const Produce produce_;
  const std::uint64_t last_;
  const bool threaded_;
  std::uint64_t claimed_;  // the next number that no worker has claimed
  std::uint64_t taken_;    // the next number that the consumer gets
  std::vector<Slot> slots_;
  std::mutex mutex_;
  std::condition_variable room_;      // the consumer took a value
  std::condition_variable produced_;  // the value that the consumer waits for exists
  std::stop_source stop_;
  std::vector<std::thread> workers_;
};

}  // namespace libtrain::tools
