#pragma once

#include <functional>
#include <list>
#include <string>
#include <vector>

#include <poll.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/comm/detail/tcp/mesh.hpp>
#include <libtrain/comm/detail/tcp/pending_connections.hpp>

namespace libtrain::detail {

/// The ranks to connect, in rank order.
struct MeshPlan {
  int rank = 0;
  std::vector<std::string> addresses = {};  ///< at which each rank listens, as "host:port"
  GroupKey key = {};
  bool encrypt = false;
};

/// Connects every rank with every other, all at the same time: the higher rank calls, the lower one answers. Calls that
/// fail are repeated until the deadline.
class MeshConnector {
 public:
  MeshConnector(const MeshPlan& plan, FileDescriptor listener);

  /// The peers in rank order. Throws CommunicationError at the deadline; it names the missing ranks and the reasons.
  /// `look` is called many times a second, and may throw to give up earlier.
  std::vector<MeshPeer> connect(const Deadline& deadline, const std::function<void()>& look);

 private:
  using Clock = Deadline::Clock;

  struct Call {
    int peer;
    Channel channel;
    Handshake handshake;
    Clock::time_point again = {};  // time of the next call, after a failure
  };

  Handshake dial(int peer, Channel channel) const;
  std::vector<pollfd> interests() const;
  void advance_calls();
  Handshake::Outcome check_hello(const Hello& hello) const;
  std::string admit(Handshake& caller);
  bool is_connected(int peer, Channel channel) const;
  void keep(int peer, Channel channel, Handshake& handshake);
  std::string missing_peers() const;

  const MeshPlan& plan_;
  std::vector<MeshPeer> peers_;
  std::list<Call> calls_;
  PendingConnections pending_;
  std::vector<std::string> reasons_;  // the last failure with each peer
  int missing_ = 0;                   // number of missing connections
};

}  // namespace libtrain::detail
