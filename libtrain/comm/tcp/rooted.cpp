#include <libtrain/comm/tcp/rooted.hpp>

#include <algorithm>
#include <bit>

namespace libtrain::detail {

namespace {

constexpr std::size_t kLongMessage = std::size_t{64} << 10;

// Ranks as counted from the root.
class Places {
 public:
  Places(const Collective& collective, int root) : collective_(collective), root_(root) {}

  int own() const { return (collective_.rank() - root_ + count()) % count(); }
  int count() const { return collective_.world_size(); }
  int rank_at(int place) const { return (place + root_) % count(); }

 private:
  const Collective& collective_;
  int root_;
};

// In a binomial tree the children of a place are those that differ from it in one bit below its lowest set one.
int lowest_bit(int place, int count) {
  return place == 0 ? static_cast<int>(std::bit_ceil(static_cast<unsigned int>(count))) : place & -place;
}

void broadcast_tree(const Collective& collective, void* data, std::size_t bytes, const Places& places) {
  Exchange exchange{collective.mesh, collective.patience};
  const int own = places.own();
  const int bit = lowest_bit(own, places.count());
  if (own != 0) exchange.receive(places.rank_at(own - bit), data, bytes);
  for (int distance = bit / 2; distance > 0; distance /= 2) {
    if (own + distance < places.count()) exchange.send(places.rank_at(own + distance), data, bytes);
  }
  exchange.finish();
}

void broadcast_chain(const Collective& collective, void* data, std::size_t bytes, const Places& places) {
  Exchange exchange{collective.mesh, collective.patience};
  const int own = places.own();
  for (std::size_t done = 0; done < bytes; done += kChunk) {
    const auto size = std::min(kChunk, bytes - done);
    if (own > 0) exchange.receive(places.rank_at(own - 1), at_offset(data, done), size);
    if (own + 1 < places.count()) exchange.send(places.rank_at(own + 1), at_offset(data, done), size);
  }
  exchange.finish();
}

void reduce_tree(const Collective& collective, const void* input, void* output, std::size_t bytes,
                 const Reduction& reduction, const Places& places) {
  auto* sum = collective.scratch.reserve(2 * bytes);
  auto* received = sum + bytes;
  copy_bytes(sum, input, bytes);
  Exchange exchange{collective.mesh, collective.patience};
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
  auto* sums = collective.scratch.reserve(2 * kChunk);
  Exchange exchange{collective.mesh, collective.patience};
  const int own = places.own();
  const bool is_last = own + 1 == places.count();
  std::size_t turn = 0;
  for (std::size_t done = 0; done < bytes; done += kChunk, ++turn) {
    const auto size = std::min(kChunk, bytes - done);
    const auto* mine = at_offset(input, done);
    auto* sum = sums + turn % 2 * kChunk;
    if (!is_last) {
      // Those nearer to the root wait for nobody else, so they will take what is queued here.
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
  }
  exchange.finish();
}

}  // namespace

void broadcast_from(const Collective& collective, void* data, std::size_t bytes, int root) {
  const Places places{collective, root};
  return bytes < kLongMessage ? broadcast_tree(collective, data, bytes, places)
                              : broadcast_chain(collective, data, bytes, places);
}

void reduce_to(const Collective& collective, const void* input, void* output, std::size_t count,
               const Reduction& reduction, int root) {
  const Places places{collective, root};
  const auto bytes = count * reduction.element();
  return bytes < kLongMessage ? reduce_tree(collective, input, output, bytes, reduction, places)
                              : reduce_chain(collective, input, output, bytes, reduction, places);
}

}  // namespace libtrain::detail
