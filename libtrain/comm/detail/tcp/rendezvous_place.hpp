#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <libtrain/base/clock.hpp>
#include <libtrain/comm/detail/tcp/secret.hpp>
#include <libtrain/comm/detail/tcp/socket.hpp>
#include <libtrain/comm/detail/tcp/tcp_options.hpp>

namespace libtrain::detail {

/// How ranks find the address at which rank 0 waits for them. Belongs to one thread.
class RendezvousPlace {
 public:
  virtual ~RendezvousPlace() = default;

  /// "tcp://node-0:29500", for messages.
  virtual std::string name() const = 0;

  /// Rank 0: a listener, which the other ranks find from now on. Throws EnvironmentError where the port is taken, or
  /// what is at the place belongs to another job.
  virtual FileDescriptor serve(const Deadline& deadline) = 0;

  /// Other ranks: where rank 0 listens, as far as is known by now; empty where it is not, yet. Called again and again.
  virtual std::vector<SocketAddress> find(const Deadline& deadline) = 0;

  /// What only a process that may read at the place can know, after serve() or a find() that has found something.
  virtual std::optional<Digest> secret() const { return std::nullopt; }

  /// Whether only this user's processes can change what it says, so that a refusal from there is final.
  virtual bool is_trusted() const { return true; }

  /// Rank 0: no rank needs to find it any more.
  virtual void close() noexcept {}
};

/// A host and a port that all ranks know from the start: `url` is tcp://host:port. A name that is not known yet is
/// looked up again, until the deadline.
std::unique_ptr<RendezvousPlace> open_tcp_place(const std::string& url);

/// A file that all hosts see: `url` is file:///path. Rank 0 writes into it where it listens (`options` says at which of
/// its addresses) and a secret, and removes it at the end. The file must belong to this user and be closed to all
/// others. What an earlier job has left in it is overwritten, unless its rank 0 still answers.
std::unique_ptr<RendezvousPlace> open_file_place(const std::string& url, const TcpOptions& options);

}  // namespace libtrain::detail
