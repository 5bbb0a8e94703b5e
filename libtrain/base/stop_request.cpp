#include <libtrain/base/stop_request.hpp>

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <mutex>
#include <utility>

namespace libtrain {
namespace {

constexpr std::array kStopSignals{SIGTERM, SIGUSR1};

std::atomic<int> requested_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free, "the handler may interrupt any code");

std::mutex handlers_mutex;
int handler_users = 0;
std::array<struct sigaction, kStopSignals.size()> former_actions{};

// Calls only async-signal-safe functions.
void record_stop_signal(int signal) {
  const int error = errno;
  int none = 0;
  if (!requested_signal.compare_exchange_strong(none, signal)) {
    struct sigaction action{};
    action.sa_handler = SIG_DFL;
    ::sigaction(signal, &action, nullptr);
    // Default actions do not end process 1 of a container.
    if (::getpid() == 1) ::_exit(128 + signal);
    // Is delivered when this handler returns.
    ::raise(signal);
  }
  errno = error;
}

void install_handlers() {
  requested_signal = 0;
  struct sigaction action{};
  action.sa_handler = record_stop_signal;
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) ::sigaction(kStopSignals[i], &action, &former_actions[i]);
}

void remove_handlers() {
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) {
    struct sigaction current{};
    ::sigaction(kStopSignals[i], nullptr, &current);
    const bool is_ours = (current.sa_flags & SA_SIGINFO) == 0 && current.sa_handler == record_stop_signal;
    if (is_ours) ::sigaction(kStopSignals[i], &former_actions[i], nullptr);
  }
}

}  // namespace

StopRequest::StopRequest(Deadline deadline, std::string deadline_name)
    : deadline_(deadline), deadline_name_(std::move(deadline_name)) {
  const std::lock_guard lock{handlers_mutex};
  if (handler_users++ == 0) install_handlers();
}

StopRequest::~StopRequest() {
  const std::lock_guard lock{handlers_mutex};
  if (--handler_users == 0) remove_handlers();
}

bool StopRequest::is_requested() const noexcept {
  return requested_signal != 0 || deadline_.expired();
}

std::string StopRequest::reason() const {
  switch (requested_signal) {
    case SIGTERM:
      return "SIGTERM";
    case SIGUSR1:
      return "SIGUSR1";
    default:
      return deadline_.expired() ? deadline_name_ : std::string{};
  }
}

}  // namespace libtrain
