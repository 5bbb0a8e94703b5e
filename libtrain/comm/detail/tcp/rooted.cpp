#include <libtrain/comm/detail/tcp/collective.hpp>

#include <algorithm>
#include <bit>

namespace libtrain::detail {

namespace {

constexpr std::size_t kMinChunk = std::size_t{16} << 10;

// Numbers the ranks from the root.
class Places {
 public:
  Places(const Collective& collective, int root) : collective_(collective), root_(root) {}

  int own() const { return (collective_.rank() - root_ + count()) % count(); }
  int count() const { return collective_.world_size(); }
  int rank_at(int place) const { return (place + root_) % count(); }

  /// Connections of the chain of all places.
  std::size_t chain_length() const { return static_cast<std::size_t>(std::max(count() - 1, 1)); }

 private:
  const Collective& collective_;
  int root_;
};

// The last rank of a chain waits until all others have passed a chunk on, which pays only for long messages.
bool suits_chain(std::size_t bytes, const Places& places) {
  constexpr std::size_t kForEachStep = std::size_t{64} << 10;
  return bytes >= kForEachStep * places.chain_length();
}

// Four chunks for every connection keep the whole chain busy most of the time. Whole pages split no element.
std::size_t chunk_of(std::size_t bytes, const Places& places) {
  constexpr std::size_t kPage = 4096;
  return std::clamp(bytes / (4 * places.chain_length()) / kPage * kPage, kMinChunk, kChunk);
}

// In a binomial tree the children of a place are those that differ from it in one bit below its lowest set one.
int lowest_bit(int place, int count) {
  return place == 0 ? static_cast<int>(std::bit_ceil(static_cast<unsigned int>(count))) : place & -place;
}

void broadcast_tree(const Collective& collective, void* data, std::size_t bytes, const Places& places) {
  Exchange exchange{collective.mesh, collective.policy};
  const int own = places.own();
  const int bit = lowest_bit(own, places.count());
  if (own != 0) exchange.receive(places.rank_at(own - bit), data, bytes);
  for (int distance = bit / 2; distance > 0; distance /= 2) {
    if (own + distance < places.count()) exchange.send(places.rank_at(own + distance), data, bytes);
  }
  exchange.finish();
}

void broadcast_chain(const Collective& collective, void* data, std::size_t bytes, const Places& places) {
  Exchange exchange{collective.mesh, collective.policy};
  const int own = places.own();
  for_each_chunk(bytes, chunk_of(bytes, places), [&](std::size_t done, std::size_t size) {
    if (own > 0) exchange.receive(places.rank_at(own - 1), at_offset(data, done), size);
    if (own + 1 < places.count()) exchange.send(places.rank_at(own + 1), at_offset(data, done), size);
  });
  exchange.finish();
}

void reduce_tree(const Collective& collective, const void* input, void* output, std::size_t bytes,
                 const Reduction& reduction, const Places& places) {
  auto* sum = collective.scratch.reserve(2 * bytes);
  auto* received = sum + bytes;
  copy_bytes(sum, input, bytes);
  Exchange exchange{collective.mesh, collective.policy};
  const int own = places.own();
  const int bit = lowest_bit(own, places.count());
  for (int distance = 1; distance < bit; distance *= 2) {
    if (own + distance >= places.count()) break;
    exchange.receive(places.rank_at(own + distance), received, bytes);
    reduction.combine_bytes(sum, received, bytes);
  }
  if (own == 0) {
    reduction.complete(sum, bytes, places.count());
    copy_bytes(output, sum, bytes);
  } else {
    exchange.send(places.rank_at(own - bit), sum, bytes);
  }
  exchange.finish();
}

// From the last place to the root.
void reduce_chain(const Collective& collective, const void* input, void* output, std::size_t bytes,
                  const Reduction& reduction, const Places& places) {
  const auto chunk = chunk_of(bytes, places);
  auto* sums = collective.scratch.reserve(2 * chunk);
  Exchange exchange{collective.mesh, collective.policy};
  const int own = places.own();
  const bool is_last = own + 1 == places.count();
  std::size_t turn = 0;
  for_each_chunk(bytes, chunk, [&](std::size_t done, std::size_t size) {
    const auto* mine = at_offset(input, done);
    auto* sum = sums + turn++ % 2 * chunk;
    if (!is_last) {
      // Ranks nearer to the root do not wait for this one in limit(), so they take the queued data.
      exchange.limit(1);
      exchange.receive(places.rank_at(own + 1), sum, size);
      reduction.combine_bytes(sum, mine, size);
    }
    if (own > 0) {
      exchange.send(places.rank_at(own - 1), is_last ? mine : sum, size);
    } else {
      reduction.complete(sum, size, places.count());
      copy_bytes(at_offset(output, done), sum, size);
    }
  });
  exchange.finish();
}

}  // namespace

void broadcast_from(const Collective& collective, void* data, std::size_t bytes, int root) {
  const Places places{collective, root};
  return suits_chain(bytes, places) ? broadcast_chain(collective, data, bytes, places)
                                    : broadcast_tree(collective, data, bytes, places);
}

void reduce_to(const Collective& collective, const void* input, void* output, std::size_t count,
               const Reduction& reduction, int root) {
  const Places places{collective, root};
  const auto bytes = count * reduction.element();
  return suits_chain(bytes, places) ? reduce_chain(collective, input, output, bytes, reduction, places)
                                    : reduce_tree(collective, input, output, bytes, reduction, places);
}

}  // namespace libtrain::detail
