#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <libtrain/base/clock.hpp>
#include <libtrain/comm/host_transport.hpp>
#include <libtrain/comm/shared_memory/board.hpp>
#include <libtrain/comm/shared_memory/peer_processes.hpp>

namespace libtrain::detail {

/// One rank's view of the meetings of its group on a board.
///
/// A rank comes by writing its card, then looks at all others' once. If they are there already, it is the last one (or
/// one of those who came last at the same time) and rings the bell if somebody sleeps. If not, it spins on the missing
/// cards for a moment, unless that would keep a peer from its processor, and then sleeps until the bell. Sleep is
/// sliced, to look after the deadline and the peers.
class Barrier {
 public:
  /// Refers to `board` and `processes`.
  Barrier(Board& board, const PeerProcesses& processes, int rank, int world_size);

  /// Messages call ranks what `names` calls them, which outlives this.
  void use_names_of(const HostTransport& names) { names_ = &names; }

  /// Returns when all ranks have come to this meeting. Throws CommunicationError: at the deadline, naming all ranks
  /// that did not come; when one is gone or has left; when the ranks came for different reasons; when one has aborted.
  /// Whatever it throws, all ranks throw, at this or their next meeting.
  void meet(MeetingKind kind, const Patience& patience);

  /// The same, and brings something along.
  void show(const Showing& showing, const Patience& patience);

  /// What a rank brought to the last meeting; readable until this rank comes to the next.
  const Showing& showing(int rank) const;

  /// Makes all ranks' pending and later meetings fail because this rank has failed. The first reason stays. Any thread,
  /// at any time.
  void abort(const std::string& reason) noexcept;

  /// The same because of something else than this rank: the reason is kept as it is.
  void refuse(const std::string& reason) noexcept;

  /// Aborts, and throws what the meetings throw.
  [[noreturn]] void give_up(const std::string& reason);

  /// Tells the peers that this rank will not come any more.
  void leave() noexcept;

 private:
  void come(Card& card, const Patience& patience);
  bool has_come(int rank) const;
  bool all_have_come();
  bool spin(const Patience& patience);
  bool worth_spinning(const Patience& patience) const;
  void sleep(const Patience& patience);
  void look_after_deadline(const Deadline& deadline);
  void look_after_peers();
  void check_kinds();
  void throw_if_failed() const;
  void fail(const std::string& reason) noexcept;
  [[noreturn]] void throw_failure(const std::string& reason);
  std::vector<int> missing() const;
  std::string name(int rank) const;
  void ring() noexcept;

  Board& board_;
  const PeerProcesses& processes_;
  const HostTransport* names_ = nullptr;
  int rank_;
  int world_size_;
  std::uint64_t meeting_ = 0;
  int first_missing_ = 0;  // all ranks below have come
  bool is_crowded_;        // more ranks than processors: whoever spins keeps a peer from coming
};

}  // namespace libtrain::detail
