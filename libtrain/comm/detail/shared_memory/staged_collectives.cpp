#include <libtrain/comm/detail/shared_memory/staged_collectives.hpp>

#include <algorithm>
#include <cstring>

#include <libtrain/comm/detail/bytes.hpp>
#include <libtrain/comm/detail/slice.hpp>
#include <libtrain/numeric/detail/reduction.hpp>

namespace libtrain::detail {

namespace {

constexpr std::size_t kChunkBytes = SharedMemoryGroup::kStagingBytes / 2;
constexpr std::size_t kSmallBytes = 8 << 10;  // up to here it is quicker that every rank reduces all than to meet again

const std::byte* at(const void* data, std::size_t offset) {
  return static_cast<const std::byte*>(data) + offset;
}

std::byte* at(void* data, std::size_t offset) {
  return static_cast<std::byte*>(data) + offset;
}

}  // namespace

StagedCollectives::StagedCollectives(SharedMemoryGroup& group) : group_(group) {}

std::byte* StagedCollectives::area(int rank, std::uint64_t chunk) const {
  return group_.staging(rank) + (chunk % 2) * kChunkBytes;
}

void StagedCollectives::meet(const WaitPolicy& policy) {
  group_.barrier().meet(MeetingKind::chunk, policy);
}

void StagedCollectives::reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                               std::optional<int> root, const WaitPolicy& policy) {
  const auto size = size_of(type);
  auto* const target = !root || *root == group_.rank() ? output : nullptr;
  if (count * size <= kSmallBytes) return reduce_small(input, target, count, type, op, policy);
  // One meeting a chunk: it ends both the reduction of this one and the filling of the next.
  const auto length = kChunkBytes / size;
  const auto fill = [&](std::size_t begin, std::uint64_t chunk) {
    const auto elements = std::min(length, count - begin);
    copy_others_slices(area(group_.rank(), chunk), at(input, begin * size), elements, size);
  };
  fill(0, chunk_);
  meet(policy);
  for_each_chunk(count, length, [&](std::size_t begin, std::size_t elements) {
    auto* const result = target == nullptr ? nullptr : at(target, begin * size);
    reduce_own_slice(at(input, begin * size), result, elements, type, op, root);
    if (begin + elements < count) fill(begin + elements, chunk_ + 1);
    meet(policy);
    if (result != nullptr) copy_others_slices(result, area(group_.rank(), chunk_), elements, size);
    ++chunk_;
  });
}

void StagedCollectives::reduce_small(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                     const WaitPolicy& policy) {
  std::memcpy(area(group_.rank(), chunk_), input, count * size_of(type));
  meet(policy);
  if (output != nullptr) reduce_areas(chunk_, 0, output, count, type, op);
  ++chunk_;
}

// A rank's own slice needs no staging: it is read and written where it lies.
void StagedCollectives::reduce_own_slice(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                         std::optional<int> root) {
  const auto slice = slice_of(count, size_of(type), group_.rank(), group_.world_size());
  const auto offset = slice.begin * size_of(type);
  inputs_.clear();
  outputs_.clear();
  for (int rank = 0; rank < group_.world_size(); ++rank) {
    const bool is_own = rank == group_.rank();
    inputs_.push_back(at(is_own ? input : area(rank, chunk_), offset));
    if (!root || *root == rank) outputs_.push_back(at(is_own ? output : area(rank, chunk_), offset));
  }
  reduce_blocks(inputs_, outputs_, slice.count, type, op);
}

void StagedCollectives::copy_others_slices(void* target, const void* source, std::size_t count,
                                           std::size_t size) const {
  const auto own = slice_of(count, size, group_.rank(), group_.world_size());
  const auto end = own.begin + own.count;
  std::memcpy(target, source, own.begin * size);
  std::memcpy(at(target, end * size), at(source, end * size), (count - end) * size);
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
    if (is_root) std::memcpy(area(root, chunk_), at(data, begin), length);
    meet(policy);
    if (!is_root) std::memcpy(at(data, begin), area(root, chunk_), length);
    ++chunk_;
  });
}

void StagedCollectives::all_gather(const void* input, void* output, std::size_t bytes, const WaitPolicy& policy) {
  for_each_chunk(bytes, kChunkBytes, [&](std::size_t begin, std::size_t length) {
    std::memcpy(area(group_.rank(), chunk_), at(input, begin), length);
    meet(policy);
    for (int rank = 0; rank < group_.world_size(); ++rank) {
      std::memcpy(at(output, static_cast<std::size_t>(rank) * bytes + begin), area(rank, chunk_), length);
    }
    ++chunk_;
  });
}

// The same run of every part, one after another.
void StagedCollectives::fill_parts(const void* input, std::size_t part_bytes, std::size_t offset, std::size_t bytes) {
  for (int part = 0; part < group_.world_size(); ++part) {
    const auto index = static_cast<std::size_t>(part);
    std::memcpy(area(group_.rank(), chunk_) + index * bytes, at(input, index * part_bytes + offset), bytes);
  }
}

// What of each part fits into one chunk; a multiple of every element's size.
std::size_t StagedCollectives::part_chunk_bytes() const {
  return kChunkBytes / static_cast<std::size_t>(group_.world_size()) / 64 * 64;
}

void StagedCollectives::reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                       const WaitPolicy& policy) {
  const auto size = size_of(type);
  for_each_chunk(count, part_chunk_bytes() / size, [&](std::size_t begin, std::size_t length) {
    fill_parts(input, count * size, begin * size, length * size);
    meet(policy);
    const auto own_part = static_cast<std::size_t>(group_.rank()) * length * size;
    reduce_areas(chunk_, own_part, at(output, begin * size), length, type, op);
    ++chunk_;
  });
}

void StagedCollectives::all_to_all(const void* input, void* output, std::size_t bytes, const WaitPolicy& policy) {
  for_each_chunk(bytes, part_chunk_bytes(), [&](std::size_t begin, std::size_t length) {
    fill_parts(input, bytes, begin, length);
    meet(policy);
    const auto own_part = static_cast<std::size_t>(group_.rank()) * length;
    for (int rank = 0; rank < group_.world_size(); ++rank) {
      std::memcpy(at(output, static_cast<std::size_t>(rank) * bytes + begin), area(rank, chunk_) + own_part, length);
    }
    ++chunk_;
  });
}

}  // namespace libtrain::detail
