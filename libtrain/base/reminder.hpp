#pragma once

#include <chrono>

namespace libtrain {

/// Tells when a wait has lasted so long that a user wants to know of it: after five seconds, and every minute.
class Reminder {
 public:
  /// True once for each of these moments.
  bool is_due() {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) return false;
    next_ = now + std::chrono::minutes(1);
    return true;
  }

 private:
  std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now() + std::chrono::seconds(5);
};

}  // namespace libtrain
