#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <libtrain/base/clock.hpp>
#include <libtrain/comm/detail/shared_memory/peer_processes.hpp>
#include <libtrain/comm/detail/shared_memory/shared_state.hpp>
#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

/// One rank's view of the meetings of its group in their shared state.
///
/// A rank arrives by writing its slot, then looks at all others' once. If they are there already, it is the last one
/// (or one of those that arrived last at the same time) and wakes those that sleep. If not, it spins on the missing
/// slots for a moment, unless that would keep a peer from its processor, and then sleeps until it is woken. Sleep is
/// sliced, to look after the deadline and the peers.
class Barrier {
 public:
  /// Refers to `state` and `processes`.
  Barrier(SharedState& state, const PeerProcesses& processes, int rank, int world_size);

  /// Messages call ranks what `names` calls them, which outlives this.
  void use_names_of(const HostTransport& names) { names_ = &names; }

  /// Returns when all ranks have arrived at this meeting. Throws CommunicationError: at the deadline, naming all ranks
  /// that did not arrive; when one is gone or has left; when the ranks arrived for different reasons; when one has
  /// aborted. Whatever it throws, all ranks throw, at this or their next meeting.
  void meet(MeetingKind kind, const WaitPolicy& policy);

  /// The same, and brings something along.
  void show(const Showing& showing, const WaitPolicy& policy);

  /// What a rank brought to the last meeting; readable until this rank arrives at the next.
  const Showing& showing(int rank) const;

  /// Makes all ranks' pending and later meetings fail because this rank has failed. The first reason stays. Any thread,
  /// at any time.
  void abort(const std::string& reason) noexcept;

  /// The same because of something else than this rank: the reason is kept as it is.
  void refuse(const std::string& reason) noexcept;

  /// Aborts, and throws what the meetings throw.
  [[noreturn]] void give_up(const std::string& reason);

  /// Tells the peers that this rank will not arrive any more.
  void leave() noexcept;

 private:
  void arrive(Slot& slot, const WaitPolicy& policy);
  bool has_arrived(int rank) const;
  bool all_have_arrived();
  bool spin(const WaitPolicy& policy);
  bool worth_spinning(const WaitPolicy& policy) const;
  void sleep(const WaitPolicy& policy);
  void look_after_deadline(const Deadline& deadline);
  void look_after_peers();
  void check_kinds();
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
  std::uint64_t meeting_ = 0;
  int first_missing_ = 0;  // all ranks below have arrived
  bool is_crowded_;        // more ranks than processors: a rank that spins keeps a peer from arriving
};

}  // namespace libtrain::detail
