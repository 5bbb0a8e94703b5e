#include <libtrain/comm/threads/thread_transport.hpp>

#include <algorithm>
#include <cstring>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/arithmetic.hpp>
#include <libtrain/comm/threads/thread_group.hpp>

namespace libtrain {

namespace {

// memcpy wants valid pointers even for nothing.
void copy(void* target, const void* source, std::size_t bytes) {
  if (bytes > 0 && target != source) std::memcpy(target, source, bytes);
}

char* at_offset(void* data, std::size_t bytes) {
  return static_cast<char*>(data) + bytes;
}

const char* at_offset(const void* data, std::size_t bytes) {
  return static_cast<const char*>(data) + bytes;
}

}  // namespace

std::vector<std::unique_ptr<HostTransport>> ThreadTransport::make_group(int world_size) {
  if (world_size < 1) throw UsageError(text("A group of threads needs at least one rank, not ", world_size, "."));
  const auto group = std::make_shared<detail::ThreadGroup>(world_size);
  std::vector<std::unique_ptr<HostTransport>> transports;
  for (int rank = 0; rank < world_size; ++rank) transports.push_back(std::make_unique<ThreadTransport>(group, rank));
  return transports;
}

ThreadTransport::ThreadTransport(std::shared_ptr<detail::ThreadGroup> group, int rank)
    : group_(std::move(group)), rank_(rank) {}

int ThreadTransport::world_size() const {
  return group_->world_size();
}

bool ThreadTransport::arrive(const Arrival& arrival, const Patience& patience) {
  group_->slot(rank_).fingerprint = arrival.fingerprint;
  detail::ThreadGroup::Section section{*group_, rank_, patience.deadline};
  bool equal = true;
  for (int peer = 0; peer < world_size(); ++peer) {
    equal = equal && group_->slot(peer).fingerprint == arrival.fingerprint;
  }
  section.close(patience.deadline);
  return equal;
}

std::vector<char> ThreadTransport::combined(std::size_t begin, std::size_t end, DataType type, ReduceOp op) {
  const auto offset = begin * size_of(type);
  const auto count = end - begin;
  std::vector<char> sum(count * size_of(type));
  if (count == 0) return sum;
  copy(sum.data(), at_offset(group_->slot(0).input, offset), sum.size());
  for (int peer = 1; peer < world_size(); ++peer) {
    detail::combine(sum.data(), at_offset(group_->slot(peer).input, offset), count, type, op);
  }
  if (op == ReduceOp::average) detail::divide(sum.data(), count, type, world_size());
  return sum;
}

void ThreadTransport::all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                 const Patience& patience) {
  group_->slot(rank_).input = input;
  group_->slot(rank_).output = output;
  detail::ThreadGroup::Section section{*group_, rank_, patience.deadline};
  // This rank owns one slice: it combines that slice of all inputs and writes it to all outputs.
  const auto ranks = static_cast<std::size_t>(world_size());
  const auto begin = count * static_cast<std::size_t>(rank_) / ranks;
  const auto end = count * (static_cast<std::size_t>(rank_) + 1) / ranks;
  const auto sum = combined(begin, end, type, op);
  for (int peer = 0; peer < world_size(); ++peer) {
    copy(at_offset(group_->slot(peer).output, begin * size_of(type)), sum.data(), sum.size());
  }
  section.close(patience.deadline);
}

void ThreadTransport::reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, int root,
                             const Patience& patience) {
  group_->slot(rank_).input = input;
  detail::ThreadGroup::Section section{*group_, rank_, patience.deadline};
  if (rank_ == root) {
    const auto sum = combined(0, count, type, op);
    copy(output, sum.data(), sum.size());
  }
  section.close(patience.deadline);
}

void ThreadTransport::broadcast(void* data, std::size_t bytes, int root, const Patience& patience) {
  group_->slot(rank_).input = data;
  detail::ThreadGroup::Section section{*group_, rank_, patience.deadline};
  copy(data, group_->slot(root).input, bytes);
  section.close(patience.deadline);
}

void ThreadTransport::all_gather(const void* input, void* output, std::size_t bytes, const Patience& patience) {
  group_->slot(rank_).input = input;
  detail::ThreadGroup::Section section{*group_, rank_, patience.deadline};
  for (int peer = 0; peer < world_size(); ++peer) {
    copy(at_offset(output, static_cast<std::size_t>(peer) * bytes), group_->slot(peer).input, bytes);
  }
  section.close(patience.deadline);
}

void ThreadTransport::reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                     const Patience& patience) {
  group_->slot(rank_).input = input;
  detail::ThreadGroup::Section section{*group_, rank_, patience.deadline};
  const auto begin = static_cast<std::size_t>(rank_) * count;
  const auto sum = combined(begin, begin + count, type, op);
  copy(output, sum.data(), sum.size());
  section.close(patience.deadline);
}

void ThreadTransport::all_to_all(const void* input, void* output, std::size_t bytes, const Patience& patience) {
  group_->slot(rank_).input = input;
  detail::ThreadGroup::Section section{*group_, rank_, patience.deadline};
  for (int peer = 0; peer < world_size(); ++peer) {
    copy(at_offset(output, static_cast<std::size_t>(peer) * bytes),
         at_offset(group_->slot(peer).input, static_cast<std::size_t>(rank_) * bytes), bytes);
  }
  section.close(patience.deadline);
}

std::unique_ptr<HostTransport> ThreadTransport::split(int color, int key, const Patience& patience) {
  group_->slot(rank_).color = color;
  group_->slot(rank_).key = key;
  detail::ThreadGroup::Section section{*group_, rank_, patience.deadline};
  int members = 0;
  int new_rank = 0;
  for (int peer = 0; peer < world_size(); ++peer) {
    const auto& slot = group_->slot(peer);
    if (slot.color != color) continue;
    ++members;
    if (slot.key < key || (slot.key == key && peer < rank_)) ++new_rank;
  }
  auto part = group_->subgroup(color, members);
  section.close(patience.deadline);
  return std::make_unique<ThreadTransport>(std::move(part), new_rank);
}

void ThreadTransport::abort(const std::string& reason) noexcept {
  group_->abort(reason);
}

}  // namespace libtrain
