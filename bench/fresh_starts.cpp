#include <bench/fresh_starts.hpp>

#include <cstddef>
#include <utility>

#include <torch/types.h>

#include <bench/step_timing.hpp>
#include <libtrain/observe/detail/percentile.hpp>

namespace libtrain::bench {

namespace {

// All parameters are float32.
double time_allocation(const TrainingPair& pair, Communicator& communicator) {
  std::vector<at::Tensor> memory;
  return time_step(communicator, [&] {
    for (const auto& bucket : pair.synchronizer().buckets()) {
      memory.push_back(communicator.allocate(static_cast<std::int64_t>(bucket.bytes / sizeof(float)), at::kFloat));
      memory.back().zero_();
    }
    pair.wait_for_device();
  });
}

// Element k is the median of the runs' k-th elements.
std::vector<double> medians(const std::vector<std::vector<double>>& runs) {
  std::vector<double> result;
  for (std::size_t step = 0; step < runs.front().size(); ++step) {
    std::vector<double> seconds;
    for (const auto& run : runs) seconds.push_back(run[step]);
    result.push_back(detail::percentile(seconds, 0.5));
  }
  return result;
}

}  // namespace

FreshStarts time_fresh_starts(const TrainingPairOptions& options, Communicator& communicator, std::int64_t starts) {
  std::vector<std::vector<double>> local;
  std::vector<std::vector<double>> synchronized;
  std::vector<double> allocations;
  for (std::int64_t start = 0; start < starts; ++start) {
    TrainingPair pair{options, communicator};
    const auto first = start % 2 == 0 ? First::synchronized : First::local;
    auto times = time_steps(pair, communicator, FreshStarts::steps, 1, first);
    local.push_back(std::move(times.local_s));
    synchronized.push_back(std::move(times.synchronized_s));
    allocations.push_back(time_allocation(pair, communicator));
  }
  return {.local_s = medians(local),
          .synchronized_s = medians(synchronized),
          .allocation_s = detail::percentile(allocations, 0.5)};
}

}  // namespace libtrain::bench
