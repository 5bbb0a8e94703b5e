#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>
#include <unordered_set>
#include <utility>

#include <libtrain/base/clock.hpp>
#include <libtrain/data/storage/content_hash.hpp>

namespace libtrain::data::detail {

/// Lets one thread of this process at a time work on a key.
class SingleFlight {
 public:
  /// The key is the caller's until this is destroyed.
  class Turn {
   public:
    Turn(SingleFlight& owner, const ContentHash& key) : owner_(&owner), key_(key) {}
    Turn(Turn&& other) noexcept : owner_(std::exchange(other.owner_, nullptr)), key_(other.key_) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn() {
      if (owner_ != nullptr) owner_->leave(key_);
    }

   private:
    SingleFlight* owner_;
    ContentHash key_;
  };

  /// Waits until no other thread has the key. Nothing where the deadline passes or a stop is requested before.
  std::optional<Turn> enter(const ContentHash& key, const Deadline& deadline, const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    const auto is_free = [&] { return !keys_.contains(key); };
    if (!is_free() && !left_.wait_until(lock, stop, deadline.time_point(), is_free)) return std::nullopt;
    keys_.insert(key);
    return std::optional<Turn>(std::in_place, *this, key);
  }

 private:
  void leave(const ContentHash& key) {
    {
      const std::lock_guard lock(mutex_);
      keys_.erase(key);
    }
    left_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable_any left_;
  std::unordered_set<ContentHash> keys_;
};

}  // namespace libtrain::data::detail
