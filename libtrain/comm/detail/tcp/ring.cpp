#include <libtrain/comm/detail/tcp/collective.hpp>

#include <algorithm>

namespace libtrain::detail {

namespace {

struct Range {
  std::size_t begin;
  std::size_t bytes;
};

// The part of rank `part` if `count` elements are divided into `parts` parts.
Range part_of(std::size_t count, const Reduction& reduction, int part, int parts) {
  const auto share = [&](int index) {
    return count / static_cast<std::size_t>(parts) * static_cast<std::size_t>(index) +
           std::min(static_cast<std::size_t>(index), count % static_cast<std::size_t>(parts));
  };
  const auto begin = share(part);
  return {begin * reduction.element(), (share(part + 1) - begin) * reduction.element()};
}

// Calls `work(offset, bytes)` for each chunk of a range.
template <typename Work>
void for_chunks(const Range& range, const Work& work) {
  for_each_chunk(range.bytes, kChunk, [&](std::size_t done, std::size_t bytes) { work(range.begin + done, bytes); });
}

}  // namespace

void ring_all_reduce(const Collective& collective, const void* input, void* output, std::size_t count,
                     const Reduction& reduction) {
  const int ranks = collective.world_size();
  const int next = collective.neighbour(1);
  const int previous = collective.neighbour(-1);
  const bool in_place = input == output;
  auto* received = collective.scratch.reserve(kChunk);
  Exchange exchange{collective.mesh, collective.policy};
  const auto part = [&](int steps_back) { return part_of(count, reduction, collective.neighbour(-steps_back), ranks); };

  const auto own = part(0);
  exchange.send(next, at_offset(input, own.begin), own.bytes);
  // Partial sums: a sum that arrives in one step is sent on in the next; the last one is complete.
  for (int step = 1; step < ranks; ++step) {
    for_chunks(part(step), [&](std::size_t offset, std::size_t bytes) {
      auto* target = at_offset(output, offset);
      exchange.receive(previous, in_place ? received : target, bytes);
      reduction.combine_bytes(target, in_place ? received : at_offset(input, offset), bytes);
      if (step == ranks - 1) reduction.complete(target, bytes, ranks);
      exchange.send(next, target, bytes);
    });
  }
  // Complete sums, once around.
  for (int step = 0; step < ranks - 1; ++step) {
    for_chunks(part(step), [&](std::size_t offset, std::size_t bytes) {
      exchange.receive(previous, at_offset(output, offset), bytes);
      if (step < ranks - 2) exchange.send(next, at_offset(output, offset), bytes);
    });
  }
  exchange.finish();
}

void ring_reduce_scatter(const Collective& collective, const void* input, void* output, std::size_t count,
                         const Reduction& reduction) {
  const int ranks = collective.world_size();
  const int next = collective.neighbour(1);
  const int previous = collective.neighbour(-1);
  const auto part_bytes = count * reduction.element();
  auto* partial = collective.scratch.reserve(2 * kChunk);
  Exchange exchange{collective.mesh, collective.policy};
  const auto part = [&](int steps_back) {
    return at_offset(input, static_cast<std::size_t>(collective.neighbour(-steps_back)) * part_bytes);
  };

  // Chunk by chunk around the ring, so that two chunks of scratch hold all partial sums. `limit` waits only if the next
  // rank has received less than this one, so the rank that has received least never waits in it.
  for_chunks({0, part_bytes}, [&](std::size_t offset, std::size_t bytes) {
    exchange.send(next, part(1) + offset, bytes);
    for (int step = 2; step < ranks; ++step) {
      exchange.limit(1);
      auto* sum = partial + static_cast<std::size_t>(step % 2) * kChunk;
      exchange.receive(previous, sum, bytes);
      reduction.combine_bytes(sum, part(step) + offset, bytes);
      exchange.send(next, sum, bytes);
    }
    // Not received into the output, which may be this rank's part of the input.
    exchange.limit(1);
    auto* sum = partial + static_cast<std::size_t>(ranks % 2) * kChunk;
    exchange.receive(previous, sum, bytes);
    reduction.combine_bytes(sum, part(0) + offset, bytes);
    reduction.complete(sum, bytes, ranks);
    copy_bytes(at_offset(output, offset), sum, bytes);
  });
  exchange.finish();
}

void ring_all_gather(const Collective& collective, const void* input, void* output, std::size_t bytes) {
  const int ranks = collective.world_size();
  const auto part = [&](int steps_back) {
    return Range{static_cast<std::size_t>(collective.neighbour(-steps_back)) * bytes, bytes};
  };
  auto* own = at_offset(output, part(0).begin);
  copy_bytes(own, input, bytes);
  Exchange exchange{collective.mesh, collective.policy};
  exchange.send(collective.neighbour(1), own, bytes);
  for (int step = 1; step < ranks; ++step) {
    for_chunks(part(step), [&](std::size_t offset, std::size_t size) {
      exchange.receive(collective.neighbour(-1), at_offset(output, offset), size);
      if (step < ranks - 1) exchange.send(collective.neighbour(1), at_offset(output, offset), size);
    });
  }
  exchange.finish();
}

}  // namespace libtrain::detail
