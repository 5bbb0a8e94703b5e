#include <libtrain/comm/detail/delayed_abort.hpp>

#include <chrono>
#include <thread>

namespace libtrain::detail {

namespace {

// Longer than a rank takes to report a failure. The process goes on after this time only if its program has caught the
// exception.
constexpr std::chrono::seconds kTimeToReport{5};

}  // namespace

void abort_after_report(std::function<void()> abort) noexcept {
  try {
    std::thread{[abort] {
      std::this_thread::sleep_for(kTimeToReport);
      abort();
    }}.detach();
  } catch (...) {  // no thread can be created
    abort();
  }
}

}  // namespace libtrain::detail
