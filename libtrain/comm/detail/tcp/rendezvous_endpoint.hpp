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

/// Tells the ranks the address at which rank 0 listens. Belongs to one thread.
class RendezvousEndpoint {
 public:
  virtual ~RendezvousEndpoint() = default;

  /// "tcp://node-0:29500", for messages.
  virtual std::string name() const = 0;

  /// Rank 0: a listener, which the other ranks find from now on. Throws EnvironmentError if the port is in use, or if
  /// the endpoint belongs to another job.
  virtual FileDescriptor serve(const Deadline& deadline) = 0;

  /// Other ranks: the addresses at which rank 0 may listen; empty if none is known yet. Called repeatedly.
  virtual std::vector<SocketAddress> find(const Deadline& deadline) = 0;

  /// After serve(), or a find() that returned an address: a secret that only processes that can read the endpoint have.
  virtual std::optional<Digest> secret() const { return std::nullopt; }

  /// Whether only this user's processes can change the address, so that a refusal from it is final.
  virtual bool is_trusted() const { return true; }

  /// Rank 0: all ranks have connected.
  virtual void close() noexcept {}
};

/// A host and a port that all ranks know from the start: `url` is tcp://host:port; throws UsageError for any other. A
/// host name that does not resolve yet is looked up again until the deadline.
std::unique_ptr<RendezvousEndpoint> open_tcp_endpoint(const std::string& url);

/// A file that all hosts share: `url` is file:///path. Rank 0 writes the address at which it listens (see `options`)
/// and a secret into it, and removes it at the end. The file must belong to this user and be closed to all others. The
/// content of an earlier job is overwritten, unless the rank 0 of that job still answers.
std::unique_ptr<RendezvousEndpoint> open_file_endpoint(const std::string& url, const TcpOptions& options);

}  // namespace libtrain::detail
