#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <libtrain/base/clock.hpp>
#include <libtrain/comm/detail/shared_memory/peer_processes.hpp>
#include <libtrain/comm/detail/shared_memory/shared_state.hpp>
#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

/// One rank's side of the barriers of its group, in their shared state.
///
/// A rank arrives by writing its slot, then checks all other slots once. If all have arrived, it is the last rank (or
/// one of those that arrived last at the same time) and wakes the sleeping ranks. If not, it spins on the missing slots
/// for a short time, unless that would take the core of a peer, and then sleeps until it is woken. It sleeps in slices,
/// to check the deadline and the peers.
class Barrier {
 public:
  /// Refers to `state` and `processes`.
  Barrier(SharedState& state, const PeerProcesses& processes, int rank, int world_size);

  /// Messages use the rank numbers of `names`, which must outlive this object.
  void use_names_of(const HostTransport& names) { names_ = &names; }

  /// Returns when all ranks have arrived at this barrier. Throws CommunicationError at the deadline, naming all ranks
  /// that did not arrive; if a rank has exited or destroyed its group; if the ranks are in different phases; if a rank
  /// has aborted. All ranks throw the same error, at this or their next barrier.
  void wait(BarrierPhase phase, const WaitPolicy& policy);

  /// The same, and publishes buffers to the peers.
  void publish(const PublishedBuffers& buffers, const WaitPolicy& policy);

  /// What a rank published at the last barrier; readable until this rank arrives at the next one.
  const PublishedBuffers& published(int rank) const;

  /// Makes all ranks' pending and later barriers fail because this rank has failed. The first reason is kept. Any
  /// thread may call it at any time.
  void abort(const std::string& reason) noexcept;

  /// The same, but the reason is kept unchanged, because it is not this rank that has failed.
  void refuse(const std::string& reason) noexcept;

  /// Aborts, and throws the error of the barriers.
  [[noreturn]] void give_up(const std::string& reason);

  /// Notifies the peers that this rank will not arrive any more.
  void close() noexcept;

 private:
  void arrive(Slot& slot, const WaitPolicy& policy);
  bool has_arrived(int rank) const;
  bool all_have_arrived();
  bool spin(const WaitPolicy& policy);
  bool worth_spinning(const WaitPolicy& policy) const;
  void sleep(const WaitPolicy& policy);
  void check_deadline(const Deadline& deadline);
  void check_peers();
  void check_phases();
  void throw_if_failed() const;
  void fail(const std::string& reason) noexcept;
  [[noreturn]] void throw_failure(const std::string& reason);
  std::vector<int> missing() const;
  std::string name(int rank) const;
  void wake_sleepers() noexcept;

  SharedState& state_;
  const PeerProcesses& processes_;
  const HostTransport* names_ = nullptr;
  int rank_;
  int world_size_;
  std::uint64_t number_ = 0;  // of the current barrier
  int first_missing_ = 0;     // all ranks below have arrived
  bool is_crowded_;           // more ranks than cores: a rank that spins keeps a peer from arriving
};

}  // namespace libtrain::detail
