#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <mpi.h>

#include <libtrain/comm/abort_reason.hpp>
#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

/// How the ranks of an MPI communicator meet before a collective: rank 0 gathers all fingerprints, compares them, and
/// tells the others its verdict. One more message than a reduction would need, but rank 0 knows who is missing, and
/// then all ranks do.
///
/// Waiting polls, with pauses that grow while nobody waits for the result: spinning would take the processor from those
/// who compute.
class MpiArrival {
 public:
  MpiArrival(MPI_Comm comm, const AbortReason& aborted);

  /// True where all ranks brought the same fingerprint. Throws CommunicationError at the deadline, naming the ranks
  /// that did not come, and when this rank or rank 0 has been aborted.
  bool meet(std::uint64_t fingerprint, const HostTransport& names, const Patience& patience);

  /// Instead of `meet`: ends the arrival of the others with `reason`.
  void refuse(const std::string& reason);

 private:
  enum class Outcome : std::uint64_t { equal, different, failed };
  /// What the others tell rank 0, and what it tells them. Small enough for MPI to take over at once, so that a rank
  /// that does not come does not hold up the sender.
  struct Message {
    std::uint64_t fingerprint = 0;
    Outcome outcome = Outcome::equal;
    char reason[496] = "";
  };
  static Message failure(const std::string& reason);

  bool gather(std::uint64_t fingerprint, const HostTransport& names, const Patience& patience);
  bool await_verdict(std::uint64_t fingerprint, const HostTransport& names, const Patience& patience);
  std::string why_given_up(const std::vector<bool>& came, const HostTransport& names) const;
  void tell(const Message& verdict, const std::vector<bool>& came);

  MPI_Comm comm_;
  const AbortReason& aborted_;
  int rank_ = 0;
  int world_size_ = 1;
};

}  // namespace libtrain::detail
