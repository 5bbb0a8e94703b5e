#pragma once

#include <cstddef>
#include <memory>

#include <libtrain/comm/bytes.hpp>
#include <libtrain/comm/tcp/exchange.hpp>
#include <libtrain/numeric/arithmetic.hpp>

namespace libtrain::detail {

/// Memory that is kept from call to call. Its contents are not.
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

/// What an algorithm works with.
struct Collective {
  Mesh& mesh;
  Scratch& scratch;
  const Patience& patience;

  int rank() const { return mesh.rank(); }
  int world_size() const { return mesh.world_size(); }

  /// The rank `steps` places further on the ring, also backwards.
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

  /// Turns the sum of all ranks into what was asked for.
  void complete(void* data, std::size_t bytes, int world_size) const {
    if (op == ReduceOp::average) divide(data, bytes / element(), type, world_size);
  }
};

/// Large messages are worked on in pieces that stay in the cache between the socket and the arithmetic; a multiple of
/// every element size.
inline constexpr std::size_t kChunk = std::size_t{256} << 10;

}  // namespace libtrain::detail
