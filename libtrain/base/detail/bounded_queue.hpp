#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include <libtrain/base/error.hpp>

namespace libtrain::detail {

/// A first-in first-out queue of at most `capacity` values for any number of producer and consumer threads.
///
/// Every wait ends with `close()`: the owner closes the queue before joining its threads. Values that were in the
/// queue when it closed can still be popped; pushes are refused from then on.
template <typename Value>
class BoundedQueue {
 public:
  /// Throws UsageError for a capacity of zero, which no push could ever pass.
  explicit BoundedQueue(std::size_t capacity) : capacity_(capacity) {
    if (capacity == 0) throw UsageError("The capacity of a queue is 0; it must be at least 1.");
  }

  BoundedQueue(const BoundedQueue&) = delete;  // threads wait on this very object
  BoundedQueue& operator=(const BoundedQueue&) = delete;

  /// Waits while the queue is full. False, with `value` dropped, where the queue is closed before there is room.
  [[nodiscard]] bool push(Value value) {
    std::unique_lock lock{mutex_};
    has_room_.wait(lock, [this] { return closed_ || values_.size() < capacity_; });
    if (closed_) return false;
    values_.push_back(std::move(value));
    lock.unlock();
    has_value_.notify_one();
    return true;
  }

  /// Waits while the queue is empty. Nothing once the queue is closed and drained.
  [[nodiscard]] std::optional<Value> pop() {
    std::unique_lock lock{mutex_};
    has_value_.wait(lock, [this] { return closed_ || !values_.empty(); });
    return take_front(lock);
  }

  /// The oldest value, or nothing where there is none right now.
  [[nodiscard]] std::optional<Value> try_pop() {
    std::unique_lock lock{mutex_};
    return take_front(lock);
  }

  /// Ends every wait. Calling it again does nothing.
  void close() {
    {
      const std::lock_guard lock{mutex_};
      closed_ = true;
    }
    has_room_.notify_all();
    has_value_.notify_all();
  }

  /// Closes and drops what has not been popped: for stopping early.
  void close_and_clear() {
    std::deque<Value> dropped;
    {
      const std::lock_guard lock{mutex_};
      closed_ = true;
      dropped.swap(values_);
    }
    has_room_.notify_all();
    has_value_.notify_all();
  }

  bool closed() const {
    const std::lock_guard lock{mutex_};
    return closed_;
  }

  /// How many values wait at this moment.
  std::size_t size() const {
    const std::lock_guard lock{mutex_};
    return values_.size();
  }

  std::size_t capacity() const { return capacity_; }

 private:
  std::optional<Value> take_front(std::unique_lock<std::mutex>& lock) {
    if (values_.empty()) return std::nullopt;
    std::optional<Value> value{std::move(values_.front())};
    values_.pop_front();
    lock.unlock();
    has_room_.notify_one();
    return value;
  }

  const std::size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable has_room_;
  std::condition_variable has_value_;
  std::deque<Value> values_;
  bool closed_ = false;
};

}  // namespace libtrain::detail
