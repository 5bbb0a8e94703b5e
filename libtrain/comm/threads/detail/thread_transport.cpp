#include <libtrain/comm/threads/detail/thread_transport.hpp>

#include <array>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/bytes.hpp>
#include <libtrain/comm/detail/slice.hpp>
#include <libtrain/comm/threads/detail/thread_group.hpp>
#include <libtrain/numeric/detail/reduction.hpp>

namespace libtrain::detail {

ThreadTransport::ThreadTransport(std::shared_ptr<ThreadGroup> group, int rank)
    : group_(std::move(group)), rank_(rank) {}

int ThreadTransport::world_size() const {
  return group_->world_size();
}

bool ThreadTransport::arrive(const Arrival& arrival, const WaitPolicy& policy) {
  group_->slot(rank_).fingerprint = arrival.fingerprint;
  ThreadGroup::Section section{*group_, rank_, policy.deadline};
  bool equal = true;
  for (int peer = 0; peer < world_size(); ++peer) {
    equal = equal && group_->slot(peer).fingerprint == arrival.fingerprint;
  }
  section.close(policy.deadline);
  return equal;
}

void ThreadTransport::reduce_part(std::size_t offset, std::span<void* const> outputs, std::size_t count, DataType type,
                                  ReduceOp op) {
  inputs_.clear();
  for (int peer = 0; peer < world_size(); ++peer) inputs_.push_back(at_offset(group_->slot(peer).input, offset));
  reduce_blocks(inputs_, outputs, count, type, op);
}

void ThreadTransport::all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                 const WaitPolicy& policy) {
  group_->slot(rank_).input = input;
  group_->slot(rank_).output = output;
  ThreadGroup::Section section{*group_, rank_, policy.deadline};
  // This rank owns one slice: it combines that slice of all inputs and writes it to all outputs.
  const auto slice = slice_of(count, size_of(type), rank_, world_size());
  const auto offset = slice.begin * size_of(type);
  outputs_.clear();
  for (int peer = 0; peer < world_size(); ++peer) outputs_.push_back(at_offset(group_->slot(peer).output, offset));
  reduce_part(offset, outputs_, slice.count, type, op);
  section.close(policy.deadline);
}

void ThreadTransport::reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, int root,
                             const WaitPolicy& policy) {
  group_->slot(rank_).input = input;
  ThreadGroup::Section section{*group_, rank_, policy.deadline};
  if (rank_ == root) reduce_part(0, std::array{output}, count, type, op);
  section.close(policy.deadline);
}

void ThreadTransport::broadcast(void* data, std::size_t bytes, int root, const WaitPolicy& policy) {
  group_->slot(rank_).input = data;
  ThreadGroup::Section section{*group_, rank_, policy.deadline};
  copy_bytes(data, group_->slot(root).input, bytes);
  section.close(policy.deadline);
}

void ThreadTransport::all_gather(const void* input, void* output, std::size_t bytes, const WaitPolicy& policy) {
  group_->slot(rank_).input = input;
  ThreadGroup::Section section{*group_, rank_, policy.deadline};
  for (int peer = 0; peer < world_size(); ++peer) {
    copy_bytes(part_of(output, peer, bytes), group_->slot(peer).input, bytes);
  }
  section.close(policy.deadline);
}

void ThreadTransport::reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                     const WaitPolicy& policy) {
  group_->slot(rank_).input = input;
  ThreadGroup::Section section{*group_, rank_, policy.deadline};
  reduce_part(static_cast<std::size_t>(rank_) * count * size_of(type), std::array{output}, count, type, op);
  section.close(policy.deadline);
}

void ThreadTransport::all_to_all(const void* input, void* output, std::size_t bytes, const WaitPolicy& policy) {
  group_->slot(rank_).input = input;
  ThreadGroup::Section section{*group_, rank_, policy.deadline};
  for (int peer = 0; peer < world_size(); ++peer) {
    copy_bytes(part_of(output, peer, bytes), part_of(group_->slot(peer).input, rank_, bytes), bytes);
  }
  section.close(policy.deadline);
}

std::unique_ptr<HostTransport> ThreadTransport::split(int color, int key, const WaitPolicy& policy) {
  group_->slot(rank_).color = color;
  group_->slot(rank_).key = key;
  ThreadGroup::Section section{*group_, rank_, policy.deadline};
  int members = 0;
  int new_rank = 0;
  for (int peer = 0; peer < world_size(); ++peer) {
    const auto& slot = group_->slot(peer);
    if (slot.color != color) continue;
    ++members;
    if (slot.key < key || (slot.key == key && peer < rank_)) ++new_rank;
  }
  auto part = group_->subgroup(color, members);
  section.close(policy.deadline);
  return std::make_unique<ThreadTransport>(std::move(part), new_rank);
}

void ThreadTransport::refuse_arrival(const std::string& reason) {
  group_->abort(reason);
}

void ThreadTransport::abort(const std::string& reason) noexcept {
  try {
    group_->abort(text("rank ", name_of(rank_), " failed: ", reason));
  } catch (...) {
    group_->abort("a rank failed");  // out of memory
  }
}

}  // namespace libtrain::detail
