#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <libtrain/comm/detail/shared_memory/group.hpp>

namespace libtrain::detail {

/// Collectives on ordinary memory, in chunks that pass through the ranks' staging areas. Arguments are those of
/// HostTransport.
///
/// A staging area holds two chunks: chunk n in half n % 2. A rank fills its own half, waits at a barrier, and then
/// reads and writes the other ranks' halves. A rank arrives at the barrier for chunk n + 1 after it has finished chunk
/// n, so after that barrier every rank may fill half n % 2 again, also in the next collective. While slow ranks read
/// chunk n, fast ranks fill chunk n + 1.
class StagedCollectives {
 public:
  /// Refers to `group`.
  explicit StagedCollectives(SharedMemoryGroup& group);

  /// `root` is empty for a result on all ranks.
  void reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, std::optional<int> root,
              const WaitPolicy& policy);
  void broadcast(void* data, std::size_t bytes, int root, const WaitPolicy& policy);
  void all_gather(const void* input, void* output, std::size_t bytes, const WaitPolicy& policy);
  void reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                      const WaitPolicy& policy);
  void all_to_all(const void* input, void* output, std::size_t bytes, const WaitPolicy& policy);

 private:
  void reduce_small(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                    const WaitPolicy& policy);
  void reduce_own_slice(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                        std::optional<int> root);
  void copy_others_slices(void* target, const void* source, std::size_t count, std::size_t size) const;
  void fill_parts(const void* input, std::size_t part_bytes, std::size_t offset, std::size_t bytes);
  void reduce_areas(std::uint64_t chunk, std::size_t offset, void* output, std::size_t count, DataType type,
                    ReduceOp op);
  std::byte* area(int rank, std::uint64_t chunk) const;
  std::size_t part_chunk_bytes() const;
  void wait(const WaitPolicy& policy);

  SharedMemoryGroup& group_;
  std::uint64_t chunk_ = 0;  // the next one
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
};

}  // namespace libtrain::detail
