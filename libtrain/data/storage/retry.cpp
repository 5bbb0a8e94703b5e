#include <libtrain/data/storage/retry.hpp>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <random>
#include <string>

#include <libtrain/base/detail/digits.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data {

namespace {

// Doubles do not overflow for any values of the options.
using Seconds = std::chrono::duration<double>;

constexpr Seconds kLongestSingleWait{3600.0};

void check(const RetryOptions& options) {
  const auto zero = std::chrono::milliseconds::zero();
  if (options.first_wait >= zero && options.longest_wait >= zero && options.deadline >= zero) return;
  throw UsageError(text("RetryOptions has first_wait ", options.first_wait.count(), " ms, longest_wait ",
                        options.longest_wait.count(), " ms and deadline ", options.deadline.count(),
                        " ms; none of them may be negative."));
}

std::string tries(int attempts, Seconds elapsed) {
  return text("Tried ", attempts == 1 ? "once" : text(attempts, " times"), " in ",
              libtrain::detail::decimal(elapsed.count(), 1), " s");
}

// The message of a transient failure; rethrows any other.
std::optional<std::string> failure_of(const std::function<void()>& attempt,
                                      const std::function<bool(const std::exception&)>& is_transient) {
  try {
    attempt();
    return std::nullopt;
  } catch (const std::exception& error) {
    if (!is_transient(error)) throw;
    return error.what();
  }
}

}  // namespace

bool RetryTimer::wait(std::chrono::nanoseconds time, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any never_notified;
  std::unique_lock lock{mutex};
  never_notified.wait_for(lock, stop, time, [] { return false; });
  return !stop.stop_requested();
}

double RetryTimer::random() {
  thread_local std::mt19937_64 generator{std::random_device{}()};
  return std::uniform_real_distribution<double>{}(generator);
}

void retry(const RetryOptions& options, RetryTimer& timer, const std::stop_token& stop,
           const std::function<void()>& attempt, const std::function<bool(const std::exception&)>& is_transient) {
  check(options);
  const Seconds deadline{options.deadline};
  const Seconds longest = std::min(Seconds{options.longest_wait}, kLongestSingleWait);
  const auto start = timer.now();
  Seconds next{options.first_wait};
  for (int attempts = 1;; ++attempts) {
    const auto failure = failure_of(attempt, is_transient);
    if (!failure) return;
    const Seconds elapsed = timer.now() - start;
    if (elapsed >= deadline) throw EnvironmentError(text(*failure, " ", tries(attempts, elapsed), "."));
    const Seconds wait = std::min(std::min(next, longest) * (0.5 + 0.5 * timer.random()), deadline - elapsed);
    if (!timer.wait(std::chrono::ceil<std::chrono::nanoseconds>(wait), stop)) {
      throw EnvironmentError(text(*failure, " ", tries(attempts, elapsed), ", then a stop was requested."));
    }
    next = std::min(next * 2, longest);
  }
}

}  // namespace libtrain::data
