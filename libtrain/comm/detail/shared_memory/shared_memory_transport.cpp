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

namespace {

const std::byte* part_of(const void* data, int rank, std::size_t bytes) {
  return static_cast<const std::byte*>(data) + static_cast<std::size_t>(rank) * bytes;
}

std::byte* part_of(void* data, int rank, std::size_t bytes) {
  return static_cast<std::byte*>(data) + static_cast<std::size_t>(rank) * bytes;
}

}  // namespace

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
  shown_.reset();
  const auto [input, output] = group_->pool().expose(arrival.input, arrival.output);
  group_->barrier().show(
      {.kind = MeetingKind::arrival, .fingerprint = arrival.fingerprint, .input = input, .output = output}, policy);
  for (int peer = 0; peer < world_size(); ++peer) {
    if (group_->barrier().showing(peer).fingerprint != arrival.fingerprint) return false;
  }
  shown_ = arrival;
  return true;
}

// Makes sure that every rank has shown the buffers of the collective that begins. Ranks decide this alike, because they
// run the same program; if they did not, the kinds of their next meetings would tell.
void SharedMemoryTransport::show_buffers(const void* input, void* output, const WaitPolicy& policy) {
  const bool is_shown = shown_ && shown_->input == input && shown_->output == output;
  shown_.reset();
  input_ = input;
  output_ = output;
  if (is_shown) return;
  const auto [input_location, output_location] = group_->pool().expose(input, output);
  group_->barrier().show({.kind = MeetingKind::opening, .input = input_location, .output = output_location}, policy);
}

void SharedMemoryTransport::meet_closing(const WaitPolicy& policy) {
  group_->barrier().meet(MeetingKind::closing, policy);
}

// No rank touches a peer's buffers any more.
void SharedMemoryTransport::hide_buffers() {
  group_->pool().conceal();
}

bool SharedMemoryTransport::all_inputs_hold(std::size_t bytes) const {
  bool all = true;
  for (int peer = 0; peer < world_size(); ++peer) all = all && group_->barrier().showing(peer).input.holds(bytes);
  return all;
}

bool SharedMemoryTransport::all_outputs_hold(std::size_t bytes) const {
  bool all = true;
  for (int peer = 0; peer < world_size(); ++peer) all = all && output_holds(peer, bytes);
  return all;
}

bool SharedMemoryTransport::output_holds(int rank, std::size_t bytes) const {
  return group_->barrier().showing(rank).output.holds(bytes);
}

const std::byte* SharedMemoryTransport::input_of(int rank) const {
  if (rank == group_->rank()) return static_cast<const std::byte*>(input_);
  return group_->address(rank, group_->barrier().showing(rank).input);
}

std::byte* SharedMemoryTransport::output_of(int rank) const {
  if (rank == group_->rank()) return static_cast<std::byte*>(output_);
  return group_->address(rank, group_->barrier().showing(rank).output);
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

void SharedMemoryTransport::all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                       const WaitPolicy& policy) {
  if (count == 0) return;
  show_buffers(input, output, policy);
  const auto bytes = count * size_of(type);
  if (all_inputs_hold(bytes) && all_outputs_hold(bytes)) {
    reduce_slice(count, type, op, std::nullopt);
    meet_closing(policy);
  } else {
    staged_->reduce(input, output, count, type, op, std::nullopt, policy);
  }
  hide_buffers();
}

void SharedMemoryTransport::reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                   int root, const WaitPolicy& policy) {
  if (count == 0) return;
  show_buffers(input, output, policy);
  const auto bytes = count * size_of(type);
  if (all_inputs_hold(bytes) && output_holds(root, bytes)) {
    reduce_slice(count, type, op, root);
    meet_closing(policy);
  } else {
    staged_->reduce(input, output, count, type, op, root, policy);
  }
  hide_buffers();
}

void SharedMemoryTransport::broadcast(void* data, std::size_t bytes, int root, const WaitPolicy& policy) {
  if (bytes == 0) return;
  show_buffers(nullptr, data, policy);
  if (output_holds(root, bytes)) {
    if (rank() != root) std::memcpy(data, output_of(root), bytes);
    meet_closing(policy);
  } else {
    staged_->broadcast(data, bytes, root, policy);
  }
  hide_buffers();
}

void SharedMemoryTransport::all_gather(const void* input, void* output, std::size_t bytes, const WaitPolicy& policy) {
  if (bytes == 0) return;
  show_buffers(input, output, policy);
  if (all_inputs_hold(bytes)) {
    for (int peer = 0; peer < world_size(); ++peer) copy_bytes(part_of(output, peer, bytes), input_of(peer), bytes);
    meet_closing(policy);
  } else if (all_outputs_hold(bytes * static_cast<std::size_t>(world_size()))) {
    for (int peer = 0; peer < world_size(); ++peer) copy_bytes(part_of(output_of(peer), rank(), bytes), input, bytes);
    meet_closing(policy);
  } else {
    staged_->all_gather(input, output, bytes, policy);
  }
  hide_buffers();
}

void SharedMemoryTransport::reduce_scatter(const void* input, void* output, std::size_t count, DataType type,
                                           ReduceOp op, const WaitPolicy& policy) {
  if (count == 0) return;
  show_buffers(input, output, policy);
  const auto bytes = count * size_of(type);
  if (all_inputs_hold(bytes * static_cast<std::size_t>(world_size()))) {
    inputs_.clear();
    for (int peer = 0; peer < world_size(); ++peer) inputs_.push_back(part_of(input_of(peer), rank(), bytes));
    outputs_.assign(1, output);
    reduce_blocks(inputs_, outputs_, count, type, op);
    meet_closing(policy);
  } else {
    staged_->reduce_scatter(input, output, count, type, op, policy);
  }
  hide_buffers();
}

void SharedMemoryTransport::all_to_all(const void* input, void* output, std::size_t bytes, const WaitPolicy& policy) {
  if (bytes == 0) return;
  show_buffers(input, output, policy);
  if (all_inputs_hold(bytes * static_cast<std::size_t>(world_size()))) {
    for (int peer = 0; peer < world_size(); ++peer) {
      std::memcpy(part_of(output, peer, bytes), part_of(input_of(peer), rank(), bytes), bytes);
    }
    meet_closing(policy);
  } else {
    staged_->all_to_all(input, output, bytes, policy);
  }
  hide_buffers();
}

std::unique_ptr<HostTransport> SharedMemoryTransport::split(int color, int key, const WaitPolicy& policy) {
  struct Wish {
    int color;
    int key;
  };
  const Wish mine{.color = color, .key = key};
  std::vector<Wish> wishes(static_cast<std::size_t>(world_size()));
  all_gather(&mine, wishes.data(), sizeof(Wish), policy);
  const auto wish_of = [&](int member) { return wishes[static_cast<std::size_t>(member)]; };
  std::vector<int> members;
  for (int peer = 0; peer < world_size(); ++peer) {
    if (wish_of(peer).color == color) members.push_back(peer);
  }
  std::ranges::stable_sort(members, {}, [&](int member) { return wish_of(member).key; });
  auto group = SharedMemoryGroup::connect(*this, members, policy);
  std::unique_ptr<SharedMemoryTransport> part{new SharedMemoryTransport(std::move(group))};
  part->keep_base(base_);
  return part;
}

std::shared_ptr<void> SharedMemoryTransport::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  try {
    return group_->pool().allocate(bytes);
  } catch (const EnvironmentError& error) {
    if (!has_warned_.exchange(true)) log_warning(text(error.what(), " Collectives on such buffers will copy them."));
    return nullptr;
  }
}

void SharedMemoryTransport::refuse_arrival(const std::string& reason) {
  group_->barrier().refuse(reason);
}

void SharedMemoryTransport::abort(const std::string& reason) noexcept {
  group_->barrier().abort(reason);
  if (base_ != nullptr) base_->abort(reason);
}

void SharedMemoryTransport::end_job(const std::string& reason, ExitCode code) noexcept {
  group_->barrier().abort(reason);
  if (base_ != nullptr) base_->end_job(reason, code);
}

}  // namespace libtrain::detail
