#include <libtrain/comm/detail/shared_memory/staged_collectives.hpp>

#include <algorithm>
#include <cstring>

#include <libtrain/comm/detail/bytes.hpp>
#include <libtrain/comm/detail/slice.hpp>
#include <libtrain/numeric/detail/reduction.hpp>

namespace libtrain::detail {

namespace {

constexpr std::size_t kChunkBytes = SharedMemoryGroup::kStagingBytes / 2;
// Up to this size it is faster if every rank reduces all elements than to wait at another barrier.
constexpr std::size_t kSmallBytes = 8 << 10;

}  // namespace

StagedCollectives::StagedCollectives(SharedMemoryGroup& group) : group_(group) {}

std::byte* StagedCollectives::area(int rank, std::uint64_t chunk) const {
  return group_.staging(rank) + (chunk % 2) * kChunkBytes;
}

void StagedCollectives::wait(const WaitPolicy& policy) {
  group_.barrier().wait(BarrierPhase::chunk, policy);
}

void StagedCollectives::reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                               std::optional<int> root, const WaitPolicy& policy) {
  const auto size = size_of(type);
  auto* const target = !root || *root == group_.rank() ? output : nullptr;
  if (count * size <= kSmallBytes) return reduce_small(input, target, count, type, op, policy);
  // One barrier per chunk: it ends both the reduction of this chunk and the filling of the next one.
  const auto length = kChunkBytes / size;
  const auto fill = [&](std::size_t begin, std::uint64_t chunk) {
    const auto elements = std::min(length, count - begin);
    copy_others_slices(area(group_.rank(), chunk), at_offset(input, begin * size), elements, size);
  };
  fill(0, chunk_);
  wait(policy);
  for_each_chunk(count, length, [&](std::size_t begin, std::size_t elements) {
    auto* const result = target == nullptr ? nullptr : at_offset(target, begin * size);
    reduce_own_slice(at_offset(input, begin * size), result, elements, type, op, root);
    if (begin + elements < count) fill(begin + elements, chunk_ + 1);
    wait(policy);
    if (result != nullptr) copy_others_slices(result, area(group_.rank(), chunk_), elements, size);
    ++chunk_;
  });
}

void StagedCollectives::reduce_small(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                     const WaitPolicy& policy) {
  std::memcpy(area(group_.rank(), chunk_), input, count * size_of(type));
  wait(policy);
  if (output != nullptr) reduce_areas(chunk_, 0, output, count, type, op);
  ++chunk_;
}

// A rank's own slice needs no staging: it is read and written in the caller's memory.
void StagedCollectives::reduce_own_slice(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                         std::optional<int> root) {
  const auto slice = slice_of(count, size_of(type), group_.rank(), group_.world_size());
  const auto offset = slice.begin * size_of(type);
  inputs_.clear();
  outputs_.clear();
  for (int rank = 0; rank < group_.world_size(); ++rank) {
    const bool is_own = rank == group_.rank();
    inputs_.push_back(at_offset(is_own ? input : area(rank, chunk_), offset));
    if (!root || *root == rank) outputs_.push_back(at_offset(is_own ? output : area(rank, chunk_), offset));
  }
  reduce_blocks(inputs_, outputs_, slice.count, type, op);
}

void StagedCollectives::copy_others_slices(void* target, const void* source, std::size_t count,
                                           std::size_t size) const {
  const auto own = slice_of(count, size, group_.rank(), group_.world_size());
  const auto end = own.begin + own.count;
  std::memcpy(target, source, own.begin * size);
  std::memcpy(at_offset(target, end * size), at_offset(source, end * size), (count - end) * size);
}

void StagedCollectives::reduce_areas(std::uint64_t chunk, std::size_t offset, void* output, std::size_t count,
                                     DataType type, ReduceOp op) {
  inputs_.clear();
  for (int rank = 0; rank < group_.world_size(); ++rank) inputs_.push_back(area(rank, chunk) + offset);
  outputs_.assign(1, output);
  reduce_blocks(inputs_, outputs_, count, type, op);
}

void StagedCollectives::broadcast(void* data, std::size_t bytes, int root, const WaitPolicy& policy) {
  const bool is_root = group_.rank() == root;
  for_each_chunk(bytes, kChunkBytes, [&](std::size_t begin, std::size_t length) {
    if (is_root) std::memcpy(area(root, chunk_), at_offset(data, begin), length);
    wait(policy);
    if (!is_root) std::memcpy(at_offset(data, begin), area(root, chunk_), length);
    ++chunk_;
  });
}

void StagedCollectives::all_gather(const void* input, void* output, std::size_t bytes, const WaitPolicy& policy) {
  for_each_chunk(bytes, kChunkBytes, [&](std::size_t begin, std::size_t length) {
    std::memcpy(area(group_.rank(), chunk_), at_offset(input, begin), length);
    wait(policy);
    for (int rank = 0; rank < group_.world_size(); ++rank) {
      std::memcpy(part_of(output, rank, bytes) + begin, area(rank, chunk_), length);
    }
    ++chunk_;
  });
}

// Copies the same range of every part into this rank's area, one after another.
void StagedCollectives::fill_parts(const void* input, std::size_t part_bytes, std::size_t offset, std::size_t bytes) {
  for (int part = 0; part < group_.world_size(); ++part) {
    std::memcpy(part_of(area(group_.rank(), chunk_), part, bytes), part_of(input, part, part_bytes) + offset, bytes);
  }
}

// The bytes of each part that fit into one chunk; a multiple of every element size.
std::size_t StagedCollectives::part_chunk_bytes() const {
  return kChunkBytes / static_cast<std::size_t>(group_.world_size()) / 64 * 64;
}

void StagedCollectives::reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                       const WaitPolicy& policy) {
  const auto size = size_of(type);
  for_each_chunk(count, part_chunk_bytes() / size, [&](std::size_t begin, std::size_t length) {
    fill_parts(input, count * size, begin * size, length * size);
    wait(policy);
    const auto own_part = static_cast<std::size_t>(group_.rank()) * length * size;
    reduce_areas(chunk_, own_part, at_offset(output, begin * size), length, type, op);
    ++chunk_;
  });
}

void StagedCollectives::all_to_all(const void* input, void* output, std::size_t bytes, const WaitPolicy& policy) {
  for_each_chunk(bytes, part_chunk_bytes(), [&](std::size_t begin, std::size_t length) {
    fill_parts(input, bytes, begin, length);
    wait(policy);
    const auto own_part = static_cast<std::size_t>(group_.rank()) * length;
    for (int rank = 0; rank < group_.world_size(); ++rank) {
      std::memcpy(part_of(output, rank, bytes) + begin, area(rank, chunk_) + own_part, length);
    }
    ++chunk_;
  });
}

}  // namespace libtrain::detail
