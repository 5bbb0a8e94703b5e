#include <libtrain/comm/detail/tcp/collective.hpp>

#include <bit>
#include <utility>

namespace libtrain::detail {

void recursive_doubling_all_reduce(const Collective& collective, const void* input, void* output, std::size_t count,
                                   const Reduction& reduction) {
  const int rank = collective.rank();
  const int core = static_cast<int>(std::bit_floor(static_cast<unsigned int>(collective.world_size())));
  const auto bytes = count * reduction.element();
  auto* sum = collective.scratch.reserve(2 * bytes);
  auto* other = sum + bytes;
  copy_bytes(sum, input, bytes);
  Exchange exchange{collective.mesh, collective.policy};

  if (rank >= core) {
    exchange.send(rank - core, sum, bytes);
    exchange.receive(rank - core, output, bytes);
    return exchange.finish();
  }
  const int folded = rank + core;
  if (folded < collective.world_size()) {
    exchange.receive(folded, other, bytes);
    reduction.combine_bytes(sum, other, bytes);
  }
  for (int distance = 1; distance < core; distance *= 2) {
    const int partner = rank ^ distance;
    exchange.send(partner, sum, bytes);
    exchange.receive(partner, other, bytes);
    exchange.finish();
    // The lower rank's operand comes first on both sides: the minimum of a number and a NaN depends on the order.
    if (partner < rank) std::swap(sum, other);
    reduction.combine_bytes(sum, other, bytes);
  }
  reduction.complete(sum, bytes, collective.world_size());
  copy_bytes(output, sum, bytes);
  if (folded < collective.world_size()) exchange.send(folded, output, bytes);
  exchange.finish();
}

}  // namespace libtrain::detail
