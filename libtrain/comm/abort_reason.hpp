#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include <libtrain/base/error.hpp>

namespace libtrain::detail {

/// Why a transport was aborted: set once, by any thread, and looked at by whoever waits.
class AbortReason {
 public:
  /// Keeps the first reason.
  void set(const std::string& reason) noexcept {
    const std::lock_guard lock(mutex_);
    if (is_set_) return;
    try {
      reason_ = reason;
    } catch (...) {
      // Out of memory: an abort without a reason is still one.
    }
    is_set_ = true;
  }

  bool is_set() const { return is_set_; }

  std::string text() const {
    const std::lock_guard lock(mutex_);
    return reason_;
  }

  /// Throws CommunicationError with the reason where there is one.
  void throw_if_set() const {
    if (is_set_) throw CommunicationError(text());
  }

 private:
  std::atomic<bool> is_set_ = false;
  mutable std::mutex mutex_;
  std::string reason_;
};

}  // namespace libtrain::detail
