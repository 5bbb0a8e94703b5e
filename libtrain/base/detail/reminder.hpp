#pragma once

#include <chrono>

namespace libtrain::detail {

/// Tells when to log a wait: after five seconds, and every minute.
class Reminder {
 public:
  /// Returns true once for each of these times.
  bool is_due() {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) return false;
    next_ = now + std::chrono::minutes(1);
    return true;
  }

 private:
  std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now() + std::chrono::seconds(5);
};

}  // namespace libtrain::detail
