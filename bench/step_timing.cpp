#include <bench/step_timing.hpp>

#include <cstddef>

#include <torch/types.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/observe/detail/percentile.hpp>

namespace libtrain::bench {

double time_step(Communicator& communicator, const std::function<void()>& step) {
  communicator.barrier();
  const Stopwatch stopwatch;
  step();
  const auto seconds = torch::full({1}, stopwatch.seconds(), torch::kDouble);
  communicator.barrier();
  communicator.all_reduce(seconds, ReduceOp::maximum).wait();
  return seconds.item<double>();
}

double StepTimes::median_ratio() const {
  std::vector<double> ratios;
  for (std::size_t step = 0; step < local_s.size(); ++step) ratios.push_back(synchronized_s[step] / local_s[step]);
  return detail::percentile(ratios, 0.5);
}

StepTimes time_steps(TrainingPair& pair, Communicator& communicator, std::int64_t count, std::int64_t steps_at_once,
                     First first) {
  StepTimes times;
  const auto time = [&](void (TrainingPair::*step)()) {
    pair.wait_for_device();
    const double seconds = time_step(communicator, [&] {
      for (std::int64_t n = 0; n < steps_at_once; ++n) (pair.*step)();
      pair.wait_for_device();
    });
    return seconds / static_cast<double>(steps_at_once);
  };
  const auto alone = [&] { times.local_s.push_back(time(&TrainingPair::step_alone)); };
  const auto together = [&] { times.synchronized_s.push_back(time(&TrainingPair::step_together)); };
  for (std::int64_t step = 0; step < count; ++step) {
    const bool local_first = (step % 2 == 0) == (first == First::local);
    if (local_first) alone();
    together();
    if (!local_first) alone();
  }
  return times;
}

}  // namespace libtrain::bench
