#pragma once

#include <memory>
#include <string>

#include <libtrain/base/environment.hpp>
#include <libtrain/comm/tcp/rendezvous.hpp>
#include <libtrain/launch/launch.hpp>

namespace c10d {
class Store;
}

namespace libtrain {

/// Where the notes are kept, and who this is.
struct StorePlace {
  std::string url;  ///< tcp://host:port or file:///path
  int rank = 0;
  int world_size = 1;

  /// torchrun's agent keeps the store at `url`: rank 0 is a client like all others.
  bool agent_hosts_store = false;

  /// Put before all keys, because the agent's store outlives a restart of the ranks.
  std::string prefix = "libtrain";

  /// What `launch` and the variables of torchrun (TORCHELASTIC_USE_AGENT_STORE, TORCHELASTIC_RUN_ID,
  /// TORCHELASTIC_RESTART_COUNT) say.
  static StorePlace of(const Launch& launch, const Environment& environment);
};

/// Notes in a store of PyTorch: a TCPStore at tcp://host:port, which rank 0 serves on one address of its host, or a
/// FileStore in a file that all ranks see.
///
/// Notes hold the job's secret. A file must belong to this user and be closed to all others: a new one is made so, one
/// that is there already and is not is refused. Rank 0 removes it once all ranks have connected. A TCPStore answers
/// whoever connects to it, so its port must not be reachable by others than the hosts of the job. Rank 0 serves it
/// while the job starts; the agent of torchrun serves its own for the life of the job, on all interfaces, and there
/// rank 0 overwrites the secret once all ranks have connected.
///
/// Whatever is stopped or hangs, no wait is longer than its deadline and two seconds, and the destructor's than five.
/// The look-up of a host's name alone takes as long as the system's resolver lets it. A call that c10d does not come
/// back from is left behind on a thread of its own; later calls of this object then find no answer either.
///
/// A FileStore reads whatever its file holds. What an earlier job has left is not taken for this one's: `set` refuses a
/// key that is there, so every rank that had a predecessor stops at once with an error that names the file, and a rank
/// without one finds another world size or waits until its deadline. A job whose ranks have all connected leaves no
/// file.
class StoreRendezvous : public Rendezvous {
 public:
  /// Throws EnvironmentError where the host is not found or stands for all addresses, the port is taken or the file
  /// cannot be used or is open to others; CommunicationError where nobody serves the store before the deadline, or what
  /// is there does not answer.
  StoreRendezvous(const StorePlace& place, const Deadline& deadline);
  ~StoreRendezvous() override;
  StoreRendezvous(const StoreRendezvous&) = delete;  // owns the connection to the store
  StoreRendezvous& operator=(const StoreRendezvous&) = delete;

  void set(const std::string& key, const std::string& bytes, const Deadline& deadline) override;
  std::string get(const std::string& key, const Deadline& deadline) override;
  void replace(const std::string& key, const std::string& bytes) noexcept override;
  void leave() noexcept override;

 private:
  struct State;
  StorePlace place_;
  std::unique_ptr<State> state_;
};

}  // namespace libtrain
