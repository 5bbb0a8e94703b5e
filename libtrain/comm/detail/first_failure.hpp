#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <string>

#include <libtrain/base/error.hpp>

namespace libtrain::detail {

/// The first failure of a communicator or a transport, with which every later call ends. Any thread may use it.
class FirstFailure {
 public:
  /// Returns false if there already is a failure, which is kept.
  bool set(std::exception_ptr failure) noexcept {
    const std::lock_guard lock(mutex_);
    if (failure_) return false;
    failure_ = std::move(failure);
    exists_ = true;
    return true;
  }

  /// The same with a CommunicationError.
  bool set(const std::string& reason) noexcept {
    try {
      return set(std::make_exception_ptr(CommunicationError(reason)));
    } catch (...) {
      return set(std::current_exception());  // out of memory
    }
  }

  bool exists() const noexcept { return exists_; }

  /// Null while there is none.
  std::exception_ptr get() const noexcept {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  /// Empty while there is none.
  std::string reason() const {
    try {
      throw_if_any();
    } catch (const std::exception& error) {
      return error.what();
    } catch (...) {
      return "unknown error";
    }
    return {};
  }

  void throw_if_any() const {
    if (exists_) std::rethrow_exception(get());
  }

 private:
  std::atomic<bool> exists_ = false;
  mutable std::mutex mutex_;
  std::exception_ptr failure_;
};

}  // namespace libtrain::detail
