#pragma once

#include <exception>
#include <mutex>

namespace libtrain::detail {

/// The first thing that went wrong, for all who come later. Any thread.
class FirstFailure {
 public:
  /// True where nothing had gone wrong before.
  bool set(std::exception_ptr failure) noexcept {
    const std::lock_guard lock(mutex_);
    if (failure_) return false;
    failure_ = std::move(failure);
    return true;
  }

  bool exists() const noexcept {
    const std::lock_guard lock(mutex_);
    return failure_ != nullptr;
  }

  void rethrow_if_any() const {
    std::exception_ptr failure;
    {
      const std::lock_guard lock(mutex_);
      failure = failure_;
    }
    if (failure) std::rethrow_exception(failure);
  }

 private:
  mutable std::mutex mutex_;
  std::exception_ptr failure_;
};

}  // namespace libtrain::detail
