#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <libtrain/comm/detail/tcp/control_channel.hpp>
#include <libtrain/comm/detail/tcp/liveness_check.hpp>
#include <libtrain/comm/detail/tcp/socket.hpp>
#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

/// The connections to one rank. The element of a mesh's own rank has none.
struct MeshPeer {
  std::string address;  ///< "host:port"
  PeerConnection data;
  ControlChannel control;
  bool left = false;  ///< it has sent a goodbye
};

/// The connections of one rank to all others, and the first failure of the group.
///
/// Data connections carry only the bytes of collectives; both sides know their number from the call. All other messages
/// use the control connections, which this rank reads whenever it waits:
/// - the first failure is kept, sent to all peers, and thrown by this and all later calls;
/// - a control connection that ends without a goodbye means that the peer's process has exited;
/// - when a deadline passes, a LivenessCheck makes all ranks name the same silent rank.
///
/// One thread at a time, except for `abort` and `refuse`.
class Mesh {
 public:
  enum class Phase {
    arriving,  ///< a silent rank has not arrived
    moving,    ///< a silent rank may have finished
  };

  /// `names` gives the numbers of the ranks in messages.
  Mesh(int rank, std::vector<MeshPeer> peers, const HostTransport& names);
  ~Mesh();
  Mesh(const Mesh&) = delete;  // another thread may be in `abort`
  Mesh& operator=(const Mesh&) = delete;

  int rank() const { return rank_; }
  int world_size() const { return static_cast<int>(peers_.size()); }

  /// Begins the next call of the group. Throws the failure of the group, if there is one.
  void begin_call();
  void enter(Phase phase) { phase_ = phase; }

  /// Reads the control messages that have arrived. Throws the failure of the group, if there is one.
  void look() { listen(std::chrono::milliseconds(0)); }

  /// The number of bytes that were sent or received without waiting, perhaps none. Throws if the peer is lost.
  std::size_t try_send(int peer, const void* data, std::size_t bytes);
  std::size_t try_receive(int peer, void* data, std::size_t bytes);

  /// Returns when `receiver` can take data or `sender` has sent some (LivenessCheck::kNoRank for neither), or on a
  /// control message. Throws at the deadline, and when a peer is lost or a rank has aborted.
  void wait(int receiver, int sender, const Deadline& deadline);

  /// Ends the group: this rank's calls fail with `reason`, the peers' with "rank N failed: " before it, once. Does
  /// nothing if the group has failed already.
  void abort(const std::string& reason) noexcept;

  /// The same for a failure that is not this rank's: the peers' calls fail with `reason` unchanged.
  void refuse(const std::string& reason) noexcept;

 private:
  MeshPeer& at(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  std::string name(int rank) const;      // "rank 3"
  std::string describe(int rank) const;  // "rank 3 at 10.0.0.3:1234"
  void listen(std::chrono::milliseconds time);
  void receive_messages(int rank);
  void handle(int rank, const ControlMessage& message);
  [[noreturn]] void give_up();
  [[noreturn]] void lose(int rank, const std::string& how);
  [[noreturn]] void fail(const std::string& reason);
  [[noreturn]] void throw_failure();
  bool remember(const std::string& reason);
  void report_failure(const std::string& reason);
  void send_to_all(const ControlMessage& message);

  const HostTransport& names_;
  int rank_;
  std::vector<MeshPeer> peers_;
  FileDescriptor events_;  // epoll: all control connections and wake_, as one descriptor to poll
  FileDescriptor wake_;    // eventfd: readable from the first failure on
  std::uint64_t call_ = 0;
  Phase phase_ = Phase::arriving;
  int waits_for_ = LivenessCheck::kNoRank;
  std::optional<LivenessCheck> liveness_;
  std::mutex mutex_;  // protects failure_ and sending on control connections
  std::string failure_;
  std::atomic<bool> failed_ = false;
  std::atomic<bool> is_reported_ = false;  // this rank has sent the failure to its peers
};

}  // namespace libtrain::detail
