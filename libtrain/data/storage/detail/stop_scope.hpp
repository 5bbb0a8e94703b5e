#pragma once

#include <stop_token>
#include <utility>

namespace libtrain::data::detail {

/// What ends the waits of the calling thread, such as those between two tries of a request, while the object lives: a
/// loader's workers are stopped so. Scopes of a thread nest.
class StopScope {
 public:
  explicit StopScope(std::stop_token stop) : outer_(std::exchange(current(), std::move(stop))) {}
  ~StopScope() { current() = std::move(outer_); }
  StopScope(const StopScope&) = delete;  // its thread's token is put back once
  StopScope& operator=(const StopScope&) = delete;

  /// One that is never stopped where there is no scope.
  static const std::stop_token& of_this_thread() { return current(); }

 private:
  static std::stop_token& current() {
    static thread_local std::stop_token token;
    return token;
  }

  std::stop_token outer_;
};

}  // namespace libtrain::data::detail
