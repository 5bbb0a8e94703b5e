#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <libtrain/comm/detail/tcp/job_key.hpp>
#include <libtrain/comm/detail/tcp/pending_connections.hpp>
#include <libtrain/comm/detail/tcp/rendezvous.hpp>
#include <libtrain/comm/detail/tcp/rendezvous_place.hpp>
#include <libtrain/comm/detail/tcp/secure_channel.hpp>

namespace libtrain::detail {

/// Which job meets, and which of its ranks this is.
struct RendezvousPlan {
  std::string job;  ///< in words, the same on all ranks and, where it has a name, in no other job
  /// Of a job without a name, how its ranks were started (see Command); else 0. Rank 0 prefers those that were started
  /// as itself: others have to wait for ten seconds, and a warning names them.
  std::uint64_t arguments = 0;
  int rank = 0;
  int world_size = 1;
  JobKey key;
  bool is_one_host = false;             ///< the launcher says so
  bool requires_key = false;            ///< of ranks on other hosts, too: what they tell each other must stay secret
  std::vector<std::string> hosts = {};  ///< of each rank, as far as the launcher lets it be known; for messages
};

/// Ranks meet at rank 0: each of the others connects to it, both prove that they know the job's key, and what they tell
/// each other from then on is encrypted and authenticated.
///
///     caller:    Hello with the job's name, rank, world size and which key  (see Handshake)
///     rank 0:    proof, or a refusal that says why
///     caller:    proof, and its record
///     rank 0:    when all have come: all records to every rank
///     ...        further records, further tables
///
/// Before the first table has been sent a rank may end and be started again, rank 0 too. Afterwards a rank that ends
/// ends the meeting on all ranks. Where rank 0 fails, it sends the reason to the ranks that have connected.
///
/// A rank on another host may lack the key, where that lies in a home directory of each host (JobKey::is_of_all_hosts)
/// and the plan does not require it. It is let in then, like any process that reaches the port: rank 0 warns of that,
/// and says what to do.
///
/// After five seconds, and every minute, rank 0 logs which ranks are missing.
class TcpRendezvous : public Rendezvous {
 public:
  TcpRendezvous(std::unique_ptr<RendezvousPlace> place, RendezvousPlan plan);
  ~TcpRendezvous() override;
  TcpRendezvous(const TcpRendezvous&) = delete;  // handshakes under way refer to it
  TcpRendezvous& operator=(const TcpRendezvous&) = delete;

  /// `own` has at most 4096 bytes.
  std::vector<std::string> all_gather(const std::string& own, const Deadline& deadline) override;
  void leave() noexcept override;

 private:
  class Server;
  class Client;

  std::unique_ptr<RendezvousPlace> place_;
  RendezvousPlan plan_;
  std::unique_ptr<Server> server_;  // on rank 0
  std::unique_ptr<Client> client_;  // elsewhere
};

/// The job whose ranks meet at `address`; nothing where nothing of libtrain answers there within two seconds.
std::optional<std::string> job_at(const SocketAddress& address);

}  // namespace libtrain::detail
