#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <libtrain/comm/detail/tcp/control_channel.hpp>
#include <libtrain/comm/detail/tcp/roll_call.hpp>
#include <libtrain/comm/detail/tcp/socket.hpp>
#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

/// One rank as the others see it. The element of a mesh's own rank has no connections.
struct MeshPeer {
  std::string address;  ///< "host:port"
  FileDescriptor data;
  ControlChannel control;
  std::unique_ptr<SecureStream> stream = nullptr;  ///< of `data`; null where nothing is encrypted
  bool left = false;                               ///< it said goodbye
};

/// The connections of one rank to all others, and the memory of the first failure.
///
/// Data connections carry nothing but the bytes of collectives: both sides know from the call how many. Everything else
/// goes over the control connections, which are listened to whenever this rank waits:
/// - the first failure is kept, told to all peers, and thrown by this and all later calls;
/// - a control connection that ends without a goodbye means that the peer's process has ended;
/// - when a deadline passes the roll is called, so that all ranks name the same silent_rank.
///
/// One thread at a time, `abort` and `refuse` excepted.
class Mesh {
 public:
  enum class Phase {
    meeting,  ///< a silent rank has not arrived
    moving,   ///< a silent rank may have finished
  };

  /// `names` knows what messages call the ranks.
  Mesh(int rank, std::vector<MeshPeer> peers, const HostTransport& names);
  ~Mesh();
  Mesh(const Mesh&) = delete;  // `abort` may be under way in another thread
  Mesh& operator=(const Mesh&) = delete;

  int rank() const { return rank_; }
  int world_size() const { return static_cast<int>(peers_.size()); }

  /// Begins the next call of the group. Throws what has failed since the last one.
  void begin_call();
  void enter(Phase phase) { phase_ = phase; }

  /// Hears what there is to hear, without waiting. Throws what has failed.
  void look() { listen(std::chrono::milliseconds(0)); }

  /// How many bytes went or came without waiting, perhaps none. Throws when the peer is lost.
  std::size_t try_send(int peer, const void* data, std::size_t bytes);
  std::size_t try_receive(int peer, void* data, std::size_t bytes);

  /// Returns when `receiver` may be sent to or `sender` has sent something (RollCall::kNoRank for neither), or anything
  /// else is new. Throws at the deadline, and when a peer is lost or anyone has aborted.
  void wait(int receiver, int sender, const Deadline& deadline);

  /// Ends the group: this rank's calls fail with `reason`, the peers' with "rank N failed: " before it, once. Does
  /// nothing where the group has failed already.
  void abort(const std::string& reason) noexcept;

  /// The same for what is not this rank's failure: the peers' calls fail with `reason` as it is.
  void refuse(const std::string& reason) noexcept;

 private:
  MeshPeer& at(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  std::string name(int rank) const;      // "rank 3"
  std::string describe(int rank) const;  // "rank 3 at 10.0.0.3:1234"
  void listen(std::chrono::milliseconds policy);
  void hear(int rank);
  void handle(int rank, const ControlMessage& message);
  [[noreturn]] void give_up();
  [[noreturn]] void lose(int rank, const std::string& how);
  [[noreturn]] void fail(const std::string& reason);
  [[noreturn]] void throw_failure();
  bool remember(const std::string& reason);
  void tell_failure(const std::string& reason);
  void tell_all(const ControlMessage& message);

  const HostTransport& names_;
  int rank_;
  std::vector<MeshPeer> peers_;
  FileDescriptor events_;  // epoll: all control connections and wake_, so that a wait watches them as one
  FileDescriptor wake_;    // eventfd: readable for ever once a thread has aborted
  std::uint64_t call_ = 0;
  Phase phase_ = Phase::meeting;
  int waits_for_ = RollCall::kNoRank;
  std::optional<RollCall> roll_;
  std::mutex mutex_;  // of failure_ and of sending on control connections
  std::string failure_;
  std::atomic<bool> failed_ = false;
  std::atomic<bool> told_ = false;  // the peers know of it from this rank
};

}  // namespace libtrain::detail
