#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <mpi.h>

#include <libtrain/comm/detail/first_failure.hpp>
#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

/// The barrier of the ranks of an MPI communicator before a collective: rank 0 gathers all fingerprints, compares them,
/// and sends the outcome to the other ranks. This takes one more message than a reduction, but rank 0 knows which ranks
/// are missing, and reports them to all.
///
/// A rank that has arrived cannot give up alone: rank 0 would count it, and the others would wait for it in an MPI call
/// that never ends. It notifies rank 0 first, and takes part in the collective if rank 0 had already started it.
///
/// Waiting polls, with pauses that grow while no caller waits for the result: spinning would take the core from threads
/// that compute. Messages are small enough for MPI to buffer, so that a missing rank does not block a sender.
class MpiArrival {
 public:
  MpiArrival(MPI_Comm comm, const FirstFailure& aborted);

  /// Returns true if all ranks have the same fingerprint. Throws CommunicationError at the first deadline of any rank,
  /// naming the ranks that did not arrive, and if a rank has been aborted. If rank 0 itself has not arrived, each rank
  /// throws at its own deadline, and the others when rank 0 arrives.
  bool wait(std::uint64_t fingerprint, const HostTransport& names, const WaitPolicy& policy);

  /// Called instead of `wait`: makes the other ranks' `wait` fail with `reason`.
  void refuse(const std::string& reason);

 private:
  enum class Kind : std::uint64_t {
    arrived,    ///< to rank 0
    late,       ///< to rank 0: the sender has arrived, and its deadline has passed
    failed,     ///< to and from rank 0
    equal,      ///< from rank 0: start the collective
    different,  ///< from rank 0
  };
  struct Header {
    Kind kind = Kind::arrived;
    std::uint64_t generation = 0;  ///< of the barrier
    std::uint64_t fingerprint = 0;
  };
  struct Message {
    int sender = 0;
    Header header;
    std::string reason;
  };

  bool gather(std::uint64_t fingerprint, const HostTransport& names, const WaitPolicy& policy);
  bool await_outcome(std::uint64_t fingerprint, const HostTransport& names, const WaitPolicy& policy);
  void send(int rank, const Header& header, const std::string& reason = {});
  std::optional<Message> receive(int sender);
  void notify_others(const Header& header, const std::string& reason = {});
  [[noreturn]] void give_up(const std::string& reason);

  MPI_Comm comm_;
  const FirstFailure& aborted_;
  int rank_ = 0;
  int world_size_ = 1;
  std::uint64_t generation_ = 0;
};

}  // namespace libtrain::detail
