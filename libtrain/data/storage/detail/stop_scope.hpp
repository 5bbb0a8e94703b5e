#pragma once

#include <stop_token>
#include <utility>

namespace libtrain::data::detail {

/// While this exists, `stop` ends the waits of the calling thread, such as those between two attempts of a request:
/// this stops a loader's workers. Scopes of a thread nest.
class StopScope {
 public:
  explicit StopScope(std::stop_token stop) : outer_(std::exchange(current(), std::move(stop))) {}
  ~StopScope() { current() = std::move(outer_); }
  StopScope(const StopScope&) = delete;  // restores its thread's token once
  StopScope& operator=(const StopScope&) = delete;

  /// The token of the innermost scope; a token that is never stopped if there is no scope.
  static const std::stop_token& of_this_thread() { return current(); }

 private:
  static std::stop_token& current() {
    static thread_local std::stop_token token;
    return token;
  }

  std::stop_token outer_;
};

}  // namespace libtrain::data::detail
