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
/// Notes hold the job's secret. The file is made readable for its owner alone; a TCPStore answers whoever connects to
/// it while the job starts, so its port must not be reachable by others than the hosts of the job.
///
/// A FileStore reads whatever its file holds. What an earlier job has left is not taken for this one's: `set` refuses a
/// key that is there, so every rank that had a predecessor stops at once with an error that names the file, and a rank
/// without one finds another world size or waits until its deadline. A job that ends in good order leaves no file: the
/// last rank to destroy its rendezvous removes it.
class StoreRendezvous : public Rendezvous {
 public:
  /// Throws EnvironmentError where the host is not found or the port is taken, CommunicationError where nobody serves
  /// the store before the deadline.
  StoreRendezvous(const StorePlace& place, const Deadline& deadline);
  ~StoreRendezvous() override;
  StoreRendezvous(const StoreRendezvous&) = delete;  // owns the connection to the store
  StoreRendezvous& operator=(const StoreRendezvous&) = delete;

  void set(const std::string& key, const std::string& bytes) override;
  std::string get(const std::string& key, const Deadline& deadline) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::string url_;
};

}  // namespace libtrain
