#include <libtrain/comm/detail/shared_memory/shared_memory_transport.hpp>

#include <algorithm>
#include <cstring>
#include <numeric>

#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/bytes.hpp>
#include <libtrain/comm/detail/shared_memory/group.hpp>
#include <libtrain/comm/detail/shared_memory/staged_collectives.hpp>
#include <libtrain/comm/detail/slice.hpp>
#include <libtrain/numeric/detail/reduction.hpp>

namespace libtrain::detail {

std::unique_ptr<SharedMemoryTransport> SharedMemoryTransport::connect(HostTransport& base, const WaitPolicy& policy) {
  std::vector<int> members(static_cast<std::size_t>(base.world_size()));
  std::iota(members.begin(), members.end(), 0);
  auto group = SharedMemoryGroup::connect(base, members, policy);
  return std::unique_ptr<SharedMemoryTransport>(new SharedMemoryTransport(std::move(group)));
}

SharedMemoryTransport::SharedMemoryTransport(std::unique_ptr<SharedMemoryGroup> group)
    : group_(std::move(group)), staged_(std::make_unique<StagedCollectives>(*group_)) {
  group_->barrier().use_names_of(*this);
}

SharedMemoryTransport::~SharedMemoryTransport() = default;

int SharedMemoryTransport::rank() const {
  return group_->rank();
}

int SharedMemoryTransport::world_size() const {
  return group_->world_size();
}

std::string SharedMemoryTransport::describe() const {
  return text(world_size(), " ranks on 1 host: shared memory");
}

bool SharedMemoryTransport::arrive(const Arrival& arrival, const WaitPolicy& policy) {
  announced_.reset();
  const auto [input, output] = group_->pool().publish(arrival.input, arrival.output);
  group_->barrier().publish(
      {.phase = BarrierPhase::arrival, .fingerprint = arrival.fingerprint, .input = input, .output = output}, policy);
  for (int peer = 0; peer < world_size(); ++peer) {
    if (group_->barrier().published(peer).fingerprint != arrival.fingerprint) return false;
  }
  announced_ = arrival;
  return true;
}

// Returns when every rank has published the buffers of the collective that begins. All ranks take the same branch,
// because they run the same program; otherwise the phases of their next barriers differ, which is an error.
void SharedMemoryTransport::publish_buffers(const void* input, void* output, const WaitPolicy& policy) {
  const bool is_published = announced_ && announced_->input == input && announced_->output == output;
  announced_.reset();
  input_ = input;
  output_ = output;
  if (is_published) return;
  const auto [input_location, output_location] = group_->pool().publish(input, output);
  group_->barrier().publish({.phase = BarrierPhase::opening, .input = input_location, .output = output_location},
                            policy);
}

void SharedMemoryTransport::close(const WaitPolicy& policy) {
  group_->barrier().wait(BarrierPhase::closing, policy);
}

// No rank accesses a peer's buffers any more.
void SharedMemoryTransport::unpublish_buffers() {
  group_->pool().unpublish();
}

bool SharedMemoryTransport::all_inputs_hold(std::size_t bytes) const {
  bool all = true;
  for (int peer = 0; peer < world_size(); ++peer) all = all && group_->barrier().published(peer).input.holds(bytes);
  return all;
}

bool SharedMemoryTransport::all_outputs_hold(std::size_t bytes) const {
  bool all = true;
  for (int peer = 0; peer < world_size(); ++peer) all = all && output_holds(peer, bytes);
  return all;
}

bool SharedMemoryTransport::output_holds(int rank, std::size_t bytes) const {
  return group_->barrier().published(rank).output.holds(bytes);
}

const std::byte* SharedMemoryTransport::input_of(int rank) const {
  if (rank == group_->rank()) return static_cast<const std::byte*>(input_);
  return group_->address(rank, group_->barrier().published(rank).input);
}

std::byte* SharedMemoryTransport::output_of(int rank) const {
  if (rank == group_->rank()) return static_cast<std::byte*>(output_);
  return group_->address(rank, group_->barrier().published(rank).output);
}

void SharedMemoryTransport::reduce_slice(std::size_t count, DataType type, ReduceOp op, std::optional<int> root) {
  const auto slice = slice_of(count, size_of(type), rank(), world_size());
  const auto offset = slice.begin * size_of(type);
  inputs_.clear();
  outputs_.clear();
  for (int peer = 0; peer < world_size(); ++peer) {
    inputs_.push_back(input_of(peer) + offset);
    if (!root || *root == peer) outputs_.push_back(output_of(peer) + offset);
  }
  reduce_blocks(inputs_, outputs_, slice.count, type, op);
}

// On all ranks, or on `root` alone.
void SharedMemoryTransport::reduce_to(std::optional<int> root, const void* input, void* output, std::size_t count,
                                      DataType type, ReduceOp op, const WaitPolicy& policy) {
  if (count == 0) return;
  publish_buffers(input, output, policy);
  const auto bytes = count * size_of(type);
  if (all_inputs_hold(bytes) && (root ? output_holds(*root, bytes) : all_outputs_hold(bytes))) {
    reduce_slice(count, type, op, root);
    close(policy);
  } else {
    staged_->reduce(input, output, count, type, op, root, policy);
  }
  unpublish_buffers();
}

void SharedMemoryTransport::all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                       const WaitPolicy& policy) {
  reduce_to(std::nullopt, input, output, count, type, op, policy);
}

void SharedMemoryTransport::reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                   int root, const WaitPolicy& policy) {
  reduce_to(root, input, output, count, type, op, policy);
}

void SharedMemoryTransport::broadcast(void* data, std::size_t bytes, int root, const WaitPolicy& policy) {
  if (bytes == 0) return;
  publish_buffers(nullptr, data, policy);
  if (output_holds(root, bytes)) {
    if (rank() != root) std::memcpy(data, output_of(root), bytes);
    close(policy);
  } else {
    staged_->broadcast(data, bytes, root, policy);
  }
  unpublish_buffers();
}

void SharedMemoryTransport::all_gather(const void* input, void* output, std::size_t bytes, const WaitPolicy& policy) {
  if (bytes == 0) return;
  publish_buffers(input, output, policy);
  if (all_inputs_hold(bytes)) {
    for (int peer = 0; peer < world_size(); ++peer) copy_bytes(part_of(output, peer, bytes), input_of(peer), bytes);
    close(policy);
  } else if (all_outputs_hold(bytes * static_cast<std::size_t>(world_size()))) {
    for (int peer = 0; peer < world_size(); ++peer) copy_bytes(part_of(output_of(peer), rank(), bytes), input, bytes);
    close(policy);
  } else {
    staged_->all_gather(input, output, bytes, policy);
  }
  unpublish_buffers();
}

void SharedMemoryTransport::reduce_scatter(const void* input, void* output, std::size_t count, DataType type,
                                           ReduceOp op, const WaitPolicy& policy) {
  if (count == 0) return;
  publish_buffers(input, output, policy);
  const auto bytes = count * size_of(type);
  if (all_inputs_hold(bytes * static_cast<std::size_t>(world_size()))) {
    inputs_.clear();
    for (int peer = 0; peer < world_size(); ++peer) inputs_.push_back(part_of(input_of(peer), rank(), bytes));
    outputs_.assign(1, output);
    reduce_blocks(inputs_, outputs_, count, type, op);
    close(policy);
  } else {
    staged_->reduce_scatter(input, output, count, type, op, policy);
  }
  unpublish_buffers();
}

void SharedMemoryTransport::all_to_all(const void* input, void* output, std::size_t bytes, const WaitPolicy& policy) {
  if (bytes == 0) return;
  publish_buffers(input, output, policy);
  if (all_inputs_hold(bytes * static_cast<std::size_t>(world_size()))) {
    for (int peer = 0; peer < world_size(); ++peer) {
      std::memcpy(part_of(output, peer, bytes), part_of(input_of(peer), rank(), bytes), bytes);
    }
    close(policy);
  } else {
    staged_->all_to_all(input, output, bytes, policy);
  }
  unpublish_buffers();
}

std::unique_ptr<HostTransport> SharedMemoryTransport::split(int color, int key, const WaitPolicy& policy) {
  struct Choice {
    int color;
    int key;
  };
  const Choice mine{.color = color, .key = key};
  std::vector<Choice> choices(static_cast<std::size_t>(world_size()));
  all_gather(&mine, choices.data(), sizeof(Choice), policy);
  const auto choice_of = [&](int member) { return choices[static_cast<std::size_t>(member)]; };
  std::vector<int> members;
  for (int peer = 0; peer < world_size(); ++peer) {
    if (choice_of(peer).color == color) members.push_back(peer);
  }
  std::ranges::stable_sort(members, {}, [&](int member) { return choice_of(member).key; });
  auto group = SharedMemoryGroup::connect(*this, members, policy);
  std::unique_ptr<SharedMemoryTransport> part{new SharedMemoryTransport(std::move(group))};
  part->keep_base(base_);
  part->is_part_ = true;
  return part;
}

std::shared_ptr<void> SharedMemoryTransport::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  try {
    return group_->pool().allocate(bytes);
  } catch (const EnvironmentError& error) {
    if (!has_warned_.exchange(true)) {
      log_warning(text(error.what(), " Buffers are allocated in ordinary memory instead, which collectives copy."));
    }
    return nullptr;
  }
}

void SharedMemoryTransport::refuse_arrival(const std::string& reason) {
  group_->barrier().refuse(reason);
}

void SharedMemoryTransport::abort(const std::string& reason) noexcept {
  group_->barrier().abort(reason);
  // A part that has failed, such as one whose ranks close it at different times, leaves the launcher's library usable.
  if (base_ != nullptr && !is_part_) base_->abort(reason);
}

void SharedMemoryTransport::end_job(const std::string& reason, ExitCode code) noexcept {
  group_->barrier().abort(reason);
  if (base_ != nullptr) base_->end_job(reason, code);
}

}  // namespace libtrain::detail
