#include <libtrain/train/peak_memory.hpp>

#include <algorithm>
#include <string>

#include <libtrain/base/machine.hpp>

namespace libtrain {

std::int64_t peak_rss_of_ranks(Communicator& communicator) {
  // As text, because some communicators take tensors on a GPU only.
  std::int64_t peak = 0;
  for (const auto& bytes : communicator.all_gather_bytes(std::to_string(peak_rss_bytes()))) {
    peak = std::max<std::int64_t>(peak, std::stoll(bytes));
  }
  return peak;
}

}  // namespace libtrain
