#include <libtrain/comm/detail/tcp/tcp_transport.hpp>

#include <algorithm>
#include <utility>

namespace libtrain::detail {

namespace {

// Below this size, the steps of a ring (twice as many as ranks) cost more than the bytes that it saves.
std::size_t ring_from(int world_size) {
  constexpr std::size_t kMin = std::size_t{64} << 10;
  constexpr std::size_t kForEachRank = std::size_t{12} << 10;
  return std::max(kMin, kForEachRank * static_cast<std::size_t>(world_size));
}

struct Greeting {
  std::uint64_t fingerprint = 0;
  std::uint64_t equal = 1;
};

}  // namespace

TcpTransport::TcpTransport(int rank, std::vector<MeshPeer> peers, const GroupKey& key, const SocketAddress& host,
                           bool encrypts)
    : mesh_(rank, std::move(peers), *this), key_(key), host_(host), encrypts_(encrypts) {}

// An arrival and the collective after it are one call: a rank that is still arriving must answer the liveness check of
// ranks that already move data. Collectives without an arrival begin their own calls, so all ranks count alike.
Collective TcpTransport::collective(const WaitPolicy& policy) {
  if (!std::exchange(has_arrived_, false)) mesh_.begin_call();
  mesh_.enter(Mesh::Phase::moving);
  return {.mesh = mesh_, .scratch = scratch_, .policy = policy};
}

// Dissemination (Hensgen, Finkel and Manber, Two algorithms for barrier synchronization, 1988): with each step a rank
// knows the fingerprints of twice as many others, and whether they were equal.
bool TcpTransport::arrive(const Arrival& arrival, const WaitPolicy& policy) {
  mesh_.begin_call();
  mesh_.enter(Mesh::Phase::arriving);
  const Collective self{.mesh = mesh_, .scratch = scratch_, .policy = policy};
  Exchange exchange{mesh_, policy};
  Greeting own{.fingerprint = arrival.fingerprint};
  for (int distance = 1; distance < world_size(); distance *= 2) {
    const auto sent = own;
    Greeting other;
    exchange.send(self.neighbour(distance), &sent, sizeof(sent));
    exchange.receive(self.neighbour(-distance), &other, sizeof(other));
    exchange.finish();
    if (other.equal == 0 || other.fingerprint != own.fingerprint) own.equal = 0;
  }
  has_arrived_ = true;
  return own.equal != 0;
}

void TcpTransport::all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                              const WaitPolicy& policy) {
  if (world_size() == 1) return copy_bytes(output, input, count * size_of(type));
  if (count * size_of(type) < ring_from(world_size())) {
    recursive_doubling_all_reduce(collective(policy), input, output, count, {type, op});
  } else {
    ring_all_reduce(collective(policy), input, output, count, {type, op});
  }
}

void TcpTransport::reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, int root,
                          const WaitPolicy& policy) {
  if (world_size() == 1) return copy_bytes(output, input, count * size_of(type));
  reduce_to(collective(policy), input, output, count, {type, op}, root);
}

void TcpTransport::broadcast(void* data, std::size_t bytes, int root, const WaitPolicy& policy) {
  if (world_size() > 1) broadcast_from(collective(policy), data, bytes, root);
}

void TcpTransport::all_gather(const void* input, void* output, std::size_t bytes, const WaitPolicy& policy) {
  if (world_size() == 1) return copy_bytes(output, input, bytes);
  ring_all_gather(collective(policy), input, output, bytes);
}

void TcpTransport::reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                  const WaitPolicy& policy) {
  if (world_size() == 1) return copy_bytes(output, input, count * size_of(type));
  ring_reduce_scatter(collective(policy), input, output, count, {type, op});
}

// In step k every rank sends to the k-th rank after it, so no rank receives from two at a time.
void TcpTransport::all_to_all(const void* input, void* output, std::size_t bytes, const WaitPolicy& policy) {
  const auto self = collective(policy);
  const auto offset = [&](int peer) { return static_cast<std::size_t>(peer) * bytes; };
  copy_bytes(at_offset(output, offset(rank())), at_offset(input, offset(rank())), bytes);
  Exchange exchange{mesh_, policy};
  for (int step = 1; step < world_size(); ++step) {
    const int receiver = self.neighbour(step);
    const int sender = self.neighbour(-step);
    exchange.send(receiver, at_offset(input, offset(receiver)), bytes);
    exchange.receive(sender, at_offset(output, offset(sender)), bytes);
  }
  exchange.finish();
}

void TcpTransport::refuse_arrival(const std::string& reason) {
  mesh_.refuse(reason);
}

void TcpTransport::abort(const std::string& reason) noexcept {
  mesh_.abort(reason);
}

}  // namespace libtrain::detail
