#include <libtrain/train/detail/peak_memory.hpp>

#include <algorithm>
#include <limits>
#include <string>

#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

std::int64_t peak_rss_of_ranks(Communicator& communicator) {
  // As text, because some communicators accept only tensors on a GPU.
  std::int64_t peak = 0;
  for (const auto& bytes : communicator.all_gather_bytes(std::to_string(peak_rss_bytes()))) {
    const auto of_rank = parse_integer(bytes, 0, std::numeric_limits<std::int64_t>::max());
    if (!of_rank)
      throw CommunicationError(
          text("A rank sent '", bytes,
               "' as its peak memory, which is not a number. Run the same build of libtrain on every rank."));
    peak = std::max<std::int64_t>(peak, *of_rank);
  }
  return peak;
}

}  // namespace libtrain::detail
