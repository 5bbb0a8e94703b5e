#pragma once

#include <functional>
#include <list>
#include <string>
#include <vector>

#include <poll.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/comm/tcp/handshake.hpp>

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
};

/// Connects every rank with every other, all at the same time: the higher rank calls, the lower one answers. Peers that
/// cannot be reached yet are called again until the deadline.
///
/// Strangers are dropped, and the first of them is logged as a warning. A guest that has proven nothing may stay for
/// ten seconds. There is room for all members that are still to come and for a few more. Where it is full, a newcomer
/// takes the place of the oldest guest that has had time for a Hello and not sent one, or else of the oldest that has
/// had that time, and waits for it. So members get through a burst of strangers; a flood that lasts can keep them
/// waiting until the deadline.
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
  struct Guest {
    Handshake handshake;
    std::string address;
    Clock::time_point came_at;
  };
  using Guests = std::list<Guest>;  // the oldest first

  Handshake dial(int peer, Channel channel) const;
  std::vector<pollfd> interests() const;
  void advance_calls();
  void advance_guests();
  void admit(Guest& guest);
  void accept_guests();
  bool is_full() const;
  Guests::const_iterator dispensable() const;
  void drop(const std::string& address, const std::string& trouble);
  FileDescriptor& place(int peer, Channel channel);
  [[noreturn]] void throw_missing() const;

  const MeshPlan& plan_;
  FileDescriptor listener_;
  std::vector<Link> links_;
  std::list<Call> calls_;
  Guests guests_;
  std::vector<std::string> troubles_;  // the last one with each peer
  int missing_ = 0;                    // connections still to come
  bool warned_ = false;
};

}  // namespace libtrain::detail
