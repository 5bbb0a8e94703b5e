#pragma once

#include <cstddef>
#include <memory>

#include <libtrain/comm/detail/bytes.hpp>
#include <libtrain/comm/detail/tcp/exchange.hpp>
#include <libtrain/numeric/detail/arithmetic.hpp>

namespace libtrain::detail {

/// Memory that is reused by later calls, without its contents.
class Scratch {
 public:
  char* reserve(std::size_t bytes) {
    if (bytes > capacity_) {
      memory_ = std::make_unique_for_overwrite<char[]>(bytes);
      capacity_ = bytes;
    }
    return memory_.get();
  }

 private:
  std::unique_ptr<char[]> memory_;
  std::size_t capacity_ = 0;
};

/// The environment of an algorithm.
struct Collective {
  Mesh& mesh;
  Scratch& scratch;
  const WaitPolicy& policy;

  int rank() const { return mesh.rank(); }
  int world_size() const { return mesh.world_size(); }

  /// The rank `steps` positions further on the ring; backwards if negative.
  int neighbour(int steps) const { return ((rank() + steps) % world_size() + world_size()) % world_size(); }
};

/// How elements are combined.
struct Reduction {
  DataType type;
  ReduceOp op;

  std::size_t element() const { return size_of(type); }

  void combine_bytes(void* accumulator, const void* operand, std::size_t bytes) const {
    combine(accumulator, operand, bytes / element(), type, op);
  }

  /// Turns the sum of all ranks into the result.
  void complete(void* data, std::size_t bytes, int world_size) const {
    if (op == ReduceOp::average) divide(data, bytes / element(), type, world_size);
  }
};

/// Large messages are processed in pieces that stay in the cache between the socket and the arithmetic. A multiple of
/// every element size.
inline constexpr std::size_t kChunk = std::size_t{256} << 10;

/// Each rank sends to the next one and receives from the previous one, so that every connection carries the minimum:
/// 2 (p - 1) / p of the data for an all-reduce among p ranks, half of that for the others (Patarasuk and Yuan,
/// Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009). A piece is sent on as soon as it is
/// combined. Every element is combined along one path around the ring, so all ranks get the same bits.
void ring_all_reduce(const Collective& collective, const void* input, void* output, std::size_t count,
                     const Reduction& reduction);

/// `count` elements for each rank.
void ring_reduce_scatter(const Collective& collective, const void* input, void* output, std::size_t count,
                         const Reduction& reduction);

/// `bytes` bytes of each rank.
void ring_all_gather(const Collective& collective, const void* input, void* output, std::size_t bytes);

/// All-reduce of short messages in log2(p) exchanges of everything (Thakur, Rabenseifner and Gropp, Optimization of
/// collective communication operations in MPICH, 2005). Ranks beyond the largest power of two hand their data to a
/// partner and get the result back.
void recursive_doubling_all_reduce(const Collective& collective, const void* input, void* output, std::size_t count,
                                   const Reduction& reduction);

/// From one rank to all, or from all to one: short messages along a binomial tree, log2(p) steps; long ones in chunks
/// along a chain of all ranks, in which every connection carries the data once and all are busy at the same time. The
/// length that counts as long grows with the number of ranks, and is the same on all of them.
void broadcast_from(const Collective& collective, void* data, std::size_t bytes, int root);

/// `output` is used only on `root`.
void reduce_to(const Collective& collective, const void* input, void* output, std::size_t count,
               const Reduction& reduction, int root);

}  // namespace libtrain::detail
