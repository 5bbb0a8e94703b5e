#pragma once

#include <functional>
#include <list>
#include <string>
#include <vector>

#include <poll.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/comm/detail/tcp/pending_connections.hpp>

namespace libtrain::detail {

/// Who is to be connected, in rank order.
struct MeshPlan {
  int rank = 0;
  std::vector<std::string> addresses = {};  ///< where each rank listens, as "host:port"
  GroupKey key = {};
};

/// The two connections to one peer; none to oneself.
struct Link {
  FileDescriptor data;
  FileDescriptor control;
  Digest data_secret{};  ///< see Handshake::session_secret
  Digest control_secret{};
};

/// Connects every rank with every other, all at the same time: the higher rank calls, the lower one answers. Peers that
/// cannot be reached yet are called again until the deadline.
class MeshConnector {
 public:
  MeshConnector(const MeshPlan& plan, FileDescriptor listener);

  /// The links in rank order. Throws CommunicationError at the deadline; it names the ranks that are missing and why.
  /// `look` is called many times a second, and may throw to give up earlier.
  std::vector<Link> connect(const Deadline& deadline, const std::function<void()>& look);

 private:
  using Clock = Deadline::Clock;

  struct Call {
    int peer;
    Channel channel;
    Handshake handshake;
    Clock::time_point again = {};  // when to call next, after a failure
  };
  Handshake dial(int peer, Channel channel) const;
  std::vector<pollfd> interests() const;
  void advance_calls();
  Handshake::Verdict judge(const Hello& hello) const;
  std::string admit(Handshake& caller);
  bool is_here(int peer, Channel channel) const;
  void keep(int peer, Channel channel, Handshake& handshake);
  std::string missing_peers() const;

  const MeshPlan& plan_;
  std::vector<Link> links_;
  std::list<Call> calls_;
  PendingConnections pending_;
  std::vector<std::string> troubles_;  // the last one with each peer
  int missing_ = 0;                    // connections still to come
};

}  // namespace libtrain::detail
