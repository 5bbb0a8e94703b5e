#pragma once

#include <future>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include <libtrain/base/clock.hpp>

namespace libtrain::detail {

/// For calls into libraries that wait without a bound: what `work()` returns, or nothing where it has not returned at
/// the deadline. It runs on a thread of its own, which is left behind at the deadline, so `work` must own all that it
/// touches. Throws what `work` throws in time.
template <typename Work>
std::optional<std::invoke_result_t<Work&>> call_with_deadline(const Deadline& deadline, Work work) {
  std::packaged_task<std::invoke_result_t<Work&>()> task{std::move(work)};
  auto result = task.get_future();
  std::thread helper{std::move(task)};
  if (!deadline.is_never() && result.wait_until(deadline.time_point()) != std::future_status::ready) {
    helper.detach();
    return std::nullopt;
  }
  helper.join();
  return result.get();
}

}  // namespace libtrain::detail
