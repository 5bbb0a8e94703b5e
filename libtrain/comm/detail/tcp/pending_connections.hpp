#pragma once

#include <functional>
#include <list>
#include <string>
#include <vector>

#include <poll.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/comm/detail/tcp/handshake.hpp>

namespace libtrain::detail {

/// What connects to a listener, until it has proven who it is.
///
/// Strangers are dropped, and the first of them is logged as a warning. A connection that has proven nothing may stay
/// for ten seconds. There is room for as many as are expected and for a few more. Where it is full, a newcomer takes
/// the place of the oldest one that has had time for a Hello and not sent one, or else of the oldest that has had that
/// time, and waits for it. So ranks get through a burst of strangers; a flood that lasts can keep them waiting until
/// the deadline.
class PendingConnections {
 public:
  /// What to think of a Hello that has come from `remote`.
  using Judge = std::function<Handshake::Verdict(const Hello& hello, const SocketAddress& remote)>;

  PendingConnections(FileDescriptor listener, Judge judge) : listener_(std::move(listener)), judge_(std::move(judge)) {}

  /// Adds what to poll for while `expected` connections are still to come.
  void add_interests(std::vector<pollfd>& polled, int expected) const;

  /// Takes the handshakes further and accepts newcomers. `admit` gets each caller that has proven to be who it says,
  /// once; it calls welcome() and keeps the socket, or returns why not.
  using Admit = std::function<std::string(Handshake& caller, const std::string& address)>;
  void advance(int expected, const Admit& admit);

  PendingConnections(const PendingConnections&) = delete;  // handshakes under way refer to it
  PendingConnections& operator=(const PendingConnections&) = delete;

 private:
  using Clock = Deadline::Clock;

  struct Pending {
    Handshake handshake;
    std::string address;
    Clock::time_point came_at;
  };
  using List = std::list<Pending>;  // the oldest first

  void accept(int expected);
  bool is_full(int expected) const;
  List::const_iterator dispensable() const;
  void drop(const std::string& address, const std::string& trouble);

  FileDescriptor listener_;
  Judge judge_;
  List pending_;
  bool warned_ = false;
};

}  // namespace libtrain::detail
