#include <libtrain/train/peak_memory.hpp>

#include <ATen/ops/full.h>

#include <libtrain/base/machine.hpp>

namespace libtrain {

std::int64_t peak_rss_of_ranks(Communicator& communicator) {
  const auto peak = at::full({1}, peak_rss_bytes(), at::kLong);
  communicator.all_reduce(peak, ReduceOp::maximum).wait();
  return peak.item<std::int64_t>();
}

}  // namespace libtrain
