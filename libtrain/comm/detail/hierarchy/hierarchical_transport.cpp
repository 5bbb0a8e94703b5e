#include <libtrain/comm/detail/hierarchy/hierarchical_transport.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/bytes.hpp>
#include <libtrain/numeric/detail/arithmetic.hpp>

namespace libtrain::detail {

namespace {

// Below this size, the number of messages matters more than the number of bytes.
constexpr std::size_t kSliceBytes = 64 << 10;
// How long after its own deadline a rank waits for the error of other ranks, which names the missing rank: between
// hosts, and inside a host.
constexpr std::chrono::milliseconds kPeerErrorTimeout{1500};
constexpr std::chrono::milliseconds kLocalOutcomeTimeout{4000};

// Averages are sums until the last stage.
ReduceOp stage_op(ReduceOp op) {
  return op == ReduceOp::average ? ReduceOp::sum : op;
}

}  // namespace

HierarchicalTransport::HierarchicalTransport(std::unique_ptr<HostTransport> world, std::unique_ptr<HostTransport> local,
                                             std::unique_ptr<HostTransport> across, HostLayout layout,
                                             HierarchyOptions options)
    : world_(std::move(world)),
      local_(std::move(local)),
      across_(std::move(across)),
      layout_(std::move(layout)),
      options_(std::move(options)),
      name_(text(local_->name(), "+", world_->name())) {}

HierarchicalTransport::~HierarchicalTransport() = default;

std::string HierarchicalTransport::describe() const {
  return text(world_size(), " ranks on ", layout_.host_count(), " hosts: shared memory inside, ", world_->name(),
              " between");
}

bool HierarchicalTransport::arrive(const Arrival& arrival, const WaitPolicy& policy) {
  // Without the buffers: the stages below move only parts of them inside the host.
  const Arrival fingerprint{.fingerprint = arrival.fingerprint};
  bool equal_here = false;
  auto together = policy;
  try {
    equal_here = local_->arrive(fingerprint, policy);
    together.deadline = earliest_deadline(policy);
  } catch (const CommunicationError& error) {
    // This host knows which of its ranks is missing; other hosts know only that its first rank has not arrived.
    if (is_host_leader()) across_->refuse_arrival(error.what());
    throw;
  }
  auto outcome = fingerprint;
  const bool equal_there = !is_host_leader() || arrive_across(arrival, equal_here, together);
  if (!equal_there) outcome.fingerprint = ~outcome.fingerprint;
  // The first rank of the host passes on the outcome between the hosts, or its failure.
  together.deadline = together.deadline.later_by(kLocalOutcomeTimeout);
  return local_->arrive(outcome, together) && equal_here && equal_there;
}

// The ranks of a host call at different times, and wait together from here on. They share a clock.
Deadline HierarchicalTransport::earliest_deadline(const WaitPolicy& policy) {
  const auto mine = policy.deadline.time_point();
  std::vector<Deadline::Clock::time_point> all(static_cast<std::size_t>(local_->world_size()));
  local_->all_gather(&mine, all.data(), sizeof(mine), policy);
  return Deadline::at(*std::min_element(all.begin(), all.end()));
}

bool HierarchicalTransport::arrive_across(const Arrival& arrival, bool equal_here, const WaitPolicy& policy) {
  try {
    // A host whose own ranks disagree passes a fingerprint that no other host can have. The other hosts get time to
    // send their error.
    const Arrival ours{.fingerprint = equal_here ? arrival.fingerprint : ~arrival.fingerprint};
    return across_->arrive(ours, {policy.deadline.later_by(kPeerErrorTimeout), policy.waiters}) && equal_here;
  } catch (const CommunicationError& error) {
    // A host that knows the missing rank has sent its error before this.
    std::string reason = error.what();
    if (policy.deadline.later_by(kPeerErrorTimeout).expired()) {
      reason +=
          " Between hosts, only the first rank of each host arrives on behalf of all its ranks: the missing rank may "
          "be another rank on that host.";
    }
    local_->refuse_arrival(reason);
    throw CommunicationError(reason, error.scope());
  }
}

void HierarchicalTransport::all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                       const WaitPolicy& policy) {
  const auto bytes = count * size_of(type);
  copy_bytes(output, input, bytes);
  if (layout_.is_even() && bytes >= kSliceBytes) {
    reduce_slices(output, count, type, op, policy);
  } else {
    reduce_by_leaders(output, count, type, op, policy);
  }
}

void HierarchicalTransport::reduce_slices(void* output, std::size_t count, DataType type, ReduceOp op,
                                          const WaitPolicy& policy) {
  const auto ranks = static_cast<std::size_t>(local_->world_size());
  const auto part = count / ranks;
  const auto part_bytes = part * size_of(type);
  void* mine = part_of(output, local_->rank(), part_bytes);
  local_->reduce_scatter(output, mine, part, type, stage_op(op), policy);
  across_->all_reduce(mine, mine, part, type, stage_op(op), policy);
  if (op == ReduceOp::average) divide(mine, part, type, world_size());
  local_->all_gather(mine, output, part_bytes, policy);
  if (part * ranks < count) reduce_by_leaders(at_offset(output, part_bytes * ranks), count % ranks, type, op, policy);
}

void HierarchicalTransport::reduce_by_leaders(void* output, std::size_t count, DataType type, ReduceOp op,
                                              const WaitPolicy& policy) {
  local_->all_reduce(output, output, count, type, stage_op(op), policy);
  if (is_host_leader()) {
    across_->all_reduce(output, output, count, type, stage_op(op), policy);
    if (op == ReduceOp::average) divide(output, count, type, world_size());
  }
  local_->broadcast(output, count * size_of(type), 0, policy);
}

void HierarchicalTransport::reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                   int root, const WaitPolicy& policy) {
  world_->reduce(input, output, count, type, op, root, policy);
}

void HierarchicalTransport::broadcast(void* data, std::size_t bytes, int root, const WaitPolicy& policy) {
  const int host = layout_.host_of(root);
  const bool here = host == layout_.host_of(rank());
  if (here) local_->broadcast(data, bytes, layout_.local_rank_of(root), policy);
  if (is_host_leader()) across_->broadcast(data, bytes, host, policy);
  if (!here) local_->broadcast(data, bytes, 0, policy);
}

void HierarchicalTransport::all_gather(const void* input, void* output, std::size_t bytes, const WaitPolicy& policy) {
  world_->all_gather(input, output, bytes, policy);
}

void HierarchicalTransport::reduce_scatter(const void* input, void* output, std::size_t count, DataType type,
                                           ReduceOp op, const WaitPolicy& policy) {
  world_->reduce_scatter(input, output, count, type, op, policy);
}

void HierarchicalTransport::all_to_all(const void* input, void* output, std::size_t bytes, const WaitPolicy& policy) {
  world_->all_to_all(input, output, bytes, policy);
}

std::unique_ptr<HostTransport> HierarchicalTransport::split(int color, int key, const WaitPolicy& policy) {
  // The arrival of this call was inside the hosts and between their first ranks; world_ needs its own.
  barrier(*world_, policy);
  return connect(world_->split(color, key, policy), options_, policy);
}

void HierarchicalTransport::abort(const std::string& reason) noexcept {
  local_->abort(reason);
  if (across_ != nullptr) across_->abort(reason);
  world_->abort(reason);
}

void HierarchicalTransport::end_job(const std::string& reason, ExitCode code) noexcept {
  local_->abort(reason);
  if (across_ != nullptr) across_->abort(reason);
  world_->end_job(reason, code);
}

}  // namespace libtrain::detail
