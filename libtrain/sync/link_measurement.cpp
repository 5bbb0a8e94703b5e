#include <libtrain/sync/link_measurement.hpp>

#include <algorithm>
#include <limits>

#include <libtrain/base/clock.hpp>

namespace libtrain::detail {

namespace {

constexpr std::int64_t kElements[] = {1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22};
constexpr int kCalls = 7;

}  // namespace

LinkCost measure_link(Communicator& communicator) {
  const auto memory = communicator.allocate(*std::max_element(std::begin(kElements), std::end(kElements)), at::kFloat);
  std::vector<ReductionTime> times;
  for (const auto elements : kElements) {
    const auto part = memory.narrow(0, 0, elements);
    double fastest = std::numeric_limits<double>::infinity();
    for (int call = 0; call < kCalls; ++call) {
      communicator.barrier();
      const Stopwatch stopwatch;
      communicator.all_reduce(part, ReduceOp::average).wait();
      fastest = std::min(fastest, stopwatch.seconds());
    }
    times.push_back({.bytes = static_cast<std::size_t>(part.nbytes()), .seconds = fastest});
  }
  return fit_link(times);
}

}  // namespace libtrain::detail
