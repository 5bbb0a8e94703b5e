#pragma once

#include <pthread.h>
#include <signal.h>

#include <future>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include <libtrain/base/clock.hpp>

namespace libtrain::detail {

/// For calls into libraries that wait without a timeout: the result of `work()`, or std::nullopt if it has not returned
/// at the deadline. It runs on its own thread, which is left behind at the deadline, so `work` must own all that it
/// uses. Throws what `work` throws in time.
template <typename Work>
std::optional<std::invoke_result_t<Work&>> call_with_deadline(const Deadline& deadline, Work work) {
  std::packaged_task<std::invoke_result_t<Work&>()> task{std::move(work)};
  auto result = task.get_future();
  // A library may write to a closed connection: that must be an error, not a signal that ends the process.
  std::thread helper{[task = std::move(task)]() mutable {
    sigset_t broken_pipe;
    sigemptyset(&broken_pipe);
    sigaddset(&broken_pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
    task();
  }};
  if (!deadline.is_never() && result.wait_until(deadline.time_point()) != std::future_status::ready) {
    helper.detach();
    return std::nullopt;
  }
  helper.join();
  return result.get();
}

}  // namespace libtrain::detail
