#pragma once

#include <functional>
#include <list>
#include <string>
#include <vector>

#include <poll.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/comm/detail/tcp/handshake.hpp>

namespace libtrain::detail {

/// Connections to a listener that have not been authenticated yet.
///
/// Connections of other processes are dropped, and the first of them is logged as a warning. A connection may stay
/// unauthenticated for ten seconds. There is room for the expected number of connections and for a few more. If there
/// is none left, a new connection replaces the oldest one that has had time for a Hello and not sent one, or else the
/// oldest that has had that time; it waits until there is such a connection. So ranks can connect during a burst of
/// unexpected connections; a flood that lasts can keep them waiting until the deadline.
class PendingConnections {
 public:
  /// Decides about a Hello that was received from `remote`.
  using HelloCheck = std::function<Handshake::Outcome(const Hello& hello, const SocketAddress& remote)>;

  PendingConnections(FileDescriptor listener, HelloCheck check_hello)
      : listener_(std::move(listener)), check_hello_(std::move(check_hello)) {}

  /// Adds the descriptors to poll while `expected` connections are missing.
  void add_interests(std::vector<pollfd>& polled, int expected) const;

  /// Advances the handshakes and accepts new connections. `admit` gets each authenticated caller once; it calls
  /// welcome() and takes the socket, or returns the reason why not.
  using Admit = std::function<std::string(Handshake& caller, const std::string& address)>;
  void advance(int expected, const Admit& admit);

  PendingConnections(const PendingConnections&) = delete;  // its handshakes refer to it
  PendingConnections& operator=(const PendingConnections&) = delete;

 private:
  using Clock = Deadline::Clock;

  struct Pending {
    Handshake handshake;
    std::string address;
    Clock::time_point accepted_at;
  };
  using List = std::list<Pending>;  // the oldest first

  void accept(int expected);
  bool is_full(int expected) const;
  List::const_iterator replaceable() const;
  void drop(const std::string& address, const std::string& reason);

  FileDescriptor listener_;
  HelloCheck check_hello_;
  List pending_;
  bool warned_ = false;
};

}  // namespace libtrain::detail
