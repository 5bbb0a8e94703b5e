#include <bench/contender.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>

#include <libtrain/base/clock.hpp>

namespace libtrain::bench {

namespace {

constexpr std::int64_t kCallsPerTurn = 5;
constexpr std::int64_t kMinIterations = 15;
constexpr std::chrono::milliseconds kNap{1};
constexpr std::chrono::milliseconds kTimeToFallAsleep{5};

// No thread waits for the work in the sense of WaitPolicy, so this rank's communication thread leaves the processor to
// the threads that compute.
void sleep_until_done(Work work) {
  while (!work.done()) std::this_thread::sleep_for(kNap);
  work.wait();
}

void call_together(Communicator& communicator, const Contender& contender, std::vector<double>& seconds) {
  for (auto& each : seconds) {
    communicator.barrier();
    const Stopwatch stopwatch;
    contender.call();
    each = stopwatch.seconds();
    communicator.barrier();
  }
}

void call_alone(const Contender& contender, std::vector<double>& seconds) {
  std::this_thread::sleep_for(kTimeToFallAsleep);  // the other ranks, who wait for this one
  for (auto& each : seconds) {
    const Stopwatch stopwatch;
    contender.call();
    each = stopwatch.seconds();
  }
}

// The slowest rank's seconds of `calls` calls that follow an untimed one.
std::vector<double> take_turn(Communicator& communicator, const Contender& contender, std::int64_t calls) {
  std::vector<double> seconds(static_cast<std::size_t>(calls) + 1);
  if (contender.called_by == CalledBy::all_ranks) {
    call_together(communicator, contender, seconds);
  } else if (communicator.rank() == 0) {
    call_alone(contender, seconds);
  }
  const auto all = at::from_blob(seconds.data(), {calls + 1}, at::kDouble);
  sleep_until_done(communicator.all_reduce(all, ReduceOp::maximum));
  seconds.erase(seconds.begin());
  return seconds;
}

std::int64_t count_wrong(Communicator& communicator, const Contender& contender) {
  const bool mine = contender.called_by == CalledBy::all_ranks || communicator.rank() == 0;
  const auto wrong = at::full({1}, mine ? contender.count_wrong() : 0, at::kLong);
  communicator.all_reduce(wrong).wait();
  if (mine) contender.clear();
  return wrong.item<std::int64_t>();
}

// From times that are the same on every rank, so that all ranks come to the same number.
std::int64_t affordable_iterations(double seconds_of_one_each, const Schedule& schedule) {
  const auto affordable = std::floor(schedule.budget_s / seconds_of_one_each);
  if (affordable >= static_cast<double>(schedule.iterations)) return schedule.iterations;
  return std::min(schedule.iterations, std::max(kMinIterations, static_cast<std::int64_t>(affordable)));
}

}  // namespace

std::vector<Measurement> measure_in_turns(Communicator& communicator, const std::vector<Contender>& contenders,
                                          const Schedule& schedule) {
  std::vector<Measurement> measurements(contenders.size());
  double seconds_of_one_each = 0;
  for (std::size_t index = 0; index < contenders.size(); ++index) {
    measurements[index].wrong = count_wrong(communicator, contenders[index]);
    const auto warm = take_turn(communicator, contenders[index], std::max<std::int64_t>(schedule.warmup, 1));
    seconds_of_one_each += *std::min_element(warm.begin(), warm.end());
  }
  const auto iterations = affordable_iterations(seconds_of_one_each, schedule);
  for (std::int64_t done = 0, turn = 0; done < iterations; done += kCallsPerTurn, ++turn) {
    for (std::size_t place = 0; place < contenders.size(); ++place) {
      const auto index = turn % 2 == 0 ? place : contenders.size() - 1 - place;
      const auto times = take_turn(communicator, contenders[index], std::min(kCallsPerTurn, iterations - done));
      auto& seconds = measurements[index].seconds;
      seconds.insert(seconds.end(), times.begin(), times.end());
    }
  }
  for (std::size_t index = 0; index < contenders.size(); ++index) {
    measurements[index].wrong += count_wrong(communicator, contenders[index]);
  }
  return measurements;
}

}  // namespace libtrain::bench
