#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <libtrain/comm/detail/tcp/job_key.hpp>
#include <libtrain/comm/detail/tcp/pending_connections.hpp>
#include <libtrain/comm/detail/tcp/rendezvous.hpp>
#include <libtrain/comm/detail/tcp/rendezvous_endpoint.hpp>
#include <libtrain/comm/detail/tcp/secure_channel.hpp>

namespace libtrain::detail {

/// A job and one of its ranks.
struct RendezvousPlan {
  std::string job;  ///< its name or a description, the same on all ranks; a name is not used by any other job
  /// If the job has no name: how its ranks were started (see Command); else 0. Rank 0 prefers ranks that were started
  /// in the same way: other ranks have to wait for ten seconds, and a warning names them.
  std::uint64_t arguments = 0;
  int rank = 0;
  int world_size = 1;
  JobKey key;
  bool is_one_host = false;             ///< according to the launcher
  bool requires_key = false;            ///< also of ranks on other hosts, because the data must stay secret
  std::vector<std::string> hosts = {};  ///< of each rank, as far as the launcher gives them; for messages
};

/// A rendezvous at rank 0: each other rank connects to it, both prove that they have the job's key, and all their later
/// messages are encrypted and authenticated.
///
///     caller:    Hello with the job's name, rank, world size and key fingerprint  (see Handshake)
///     rank 0:    proof, or a refusal with its reason
///     caller:    proof, and its record
///     rank 0:    once all ranks have connected: all records to every rank
///     ...        further records, further tables
///
/// Until the first table is sent, any rank may exit and be started again, even rank 0. Later, a rank that exits ends
/// the rendezvous on all ranks. If rank 0 fails, it sends the reason to the ranks that have connected.
///
/// A rank on another host may lack the key if each host has its own home directory (see JobKey::is_of_all_hosts) and
/// the plan does not require the key. Rank 0 then accepts it, like any process that can connect to the port, and warns
/// of this.
///
/// After five seconds, and every minute, rank 0 logs the missing ranks.
class TcpRendezvous : public Rendezvous {
 public:
  TcpRendezvous(std::unique_ptr<RendezvousEndpoint> endpoint, RendezvousPlan plan);
  ~TcpRendezvous() override;
  TcpRendezvous(const TcpRendezvous&) = delete;  // its handshakes refer to it
  TcpRendezvous& operator=(const TcpRendezvous&) = delete;

  /// `own` has at most 4096 bytes.
  std::vector<std::string> all_gather(const std::string& own, const Deadline& deadline) override;
  void leave() noexcept override;

 private:
  class Server;
  class Client;

  std::unique_ptr<RendezvousEndpoint> endpoint_;
  RendezvousPlan plan_;
  std::unique_ptr<Server> server_;  // on rank 0
  std::unique_ptr<Client> client_;  // on the other ranks
};

/// The job whose rank 0 listens at `address`; std::nullopt if no process of libtrain answers there within two seconds.
std::optional<std::string> job_at(const SocketAddress& address);

}  // namespace libtrain::detail
