#pragma once

#include <memory>
#include <string>
#include <vector>

#include <libtrain/comm/detail/tcp/collective.hpp>
#include <libtrain/comm/detail/tcp/rendezvous.hpp>
#include <libtrain/comm/detail/tcp/secret.hpp>
#include <libtrain/comm/detail/tcp/socket_address.hpp>
#include <libtrain/comm/detail/tcp/tcp_options.hpp>
#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

/// Collectives over TCP connections between all pairs of ranks, for hosts without MPI.
///
/// A rank listens on one address of its host while the group connects, and never afterwards. Peers prove to each other
/// that they have the group's secret before anything else is read; other connections are dropped. The data is neither
/// encrypted nor authenticated unless TcpOptions::encrypt is set: an attacker who can modify packets between the hosts
/// can change results.
///
/// A peer that is lost, stopped or missing ends the calls of all ranks with one error that names it. The order of sums
/// depends only on the world size and the length, so reruns are bit-equal.
class TcpTransport : public HostTransport {
 public:
  /// The group of all ranks of a job. All must call it; `rendezvous` is not needed afterwards. Throws EnvironmentError
  /// if the ranks' world sizes differ or a rank has no usable address, CommunicationError if ranks do not connect.
  static std::unique_ptr<HostTransport> connect(Rendezvous& rendezvous, int rank, int world_size,
                                                const TcpOptions& options, const WaitPolicy& policy);

  /// The ranks of `base`, which carries the addresses and the secret: it must be trusted. All of them must call it.
  static std::unique_ptr<HostTransport> connect(HostTransport& base, const TcpOptions& options,
                                                const WaitPolicy& policy);

  /// Use `connect`. `host` is this rank's own address, with port 0.
  TcpTransport(int rank, std::vector<MeshPeer> peers, const GroupKey& key, const SocketAddress& host, bool encrypts);

  int rank() const override { return mesh_.rank(); }
  int world_size() const override { return mesh_.world_size(); }
  std::string_view name() const override { return encrypts_ ? "encrypted tcp" : "tcp"; }

  bool arrive(const Arrival& arrival, const WaitPolicy& policy) override;
  void all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                  const WaitPolicy& policy) override;
  void reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, int root,
              const WaitPolicy& policy) override;
  void broadcast(void* data, std::size_t bytes, int root, const WaitPolicy& policy) override;
  void all_gather(const void* input, void* output, std::size_t bytes, const WaitPolicy& policy) override;
  void reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                      const WaitPolicy& policy) override;
  void all_to_all(const void* input, void* output, std::size_t bytes, const WaitPolicy& policy) override;
  std::unique_ptr<HostTransport> split(int color, int key, const WaitPolicy& policy) override;
  void refuse_arrival(const std::string& reason) override;
  void abort(const std::string& reason) noexcept override;

 private:
  Collective collective(const WaitPolicy& policy);

  Mesh mesh_;
  GroupKey key_;
  SocketAddress host_;
  bool encrypts_;
  Scratch scratch_;
  bool has_arrived_ = false;  // and has moved no data since
};

}  // namespace libtrain::detail
