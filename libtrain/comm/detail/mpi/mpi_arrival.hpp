#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <mpi.h>

#include <libtrain/comm/detail/first_failure.hpp>
#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

/// How the ranks of an MPI communicator meet before a collective: rank 0 gathers all fingerprints, compares them, and
/// tells the others its verdict. One more message than a reduction would need, but rank 0 knows who is missing, and
/// then all ranks do.
///
/// A rank that has come may not just go: rank 0 would count it in, and the others would wait for it in a call of MPI
/// that nothing ends. It says so first, and comes along if rank 0 had already told all to begin.
///
/// Waiting polls, with pauses that grow while no caller waits for the result: spinning would take the processor from
/// those who compute. Messages are small enough for MPI to take over at once, so that a rank that does not come does
/// not hold up a sender.
class MpiArrival {
 public:
  MpiArrival(MPI_Comm comm, const FirstFailure& aborted);

  /// True where all ranks brought the same fingerprint. Throws CommunicationError at the first deadline of any rank,
  /// naming the ranks that did not arrive, and when a rank has been aborted. Where rank 0 itself has not come, only
  /// those whose deadline has passed throw, and the others when it comes.
  bool meet(std::uint64_t fingerprint, const HostTransport& names, const WaitPolicy& policy);

  /// Instead of `meet`: ends the arrival of the others with `reason`.
  void refuse(const std::string& reason);

 private:
  enum class Word : std::uint64_t {
    come,       ///< to rank 0
    late,       ///< to rank 0: the sender has come, and its deadline has passed
    failed,     ///< to and from rank 0
    equal,      ///< from rank 0: begin
    different,  ///< from rank 0
  };
  struct Header {
    Word word = Word::come;
    std::uint64_t meeting = 0;
    std::uint64_t fingerprint = 0;
  };
  struct Message {
    int sender = 0;
    Header header;
    std::string reason;
  };

  bool gather(std::uint64_t fingerprint, const HostTransport& names, const WaitPolicy& policy);
  bool await_verdict(std::uint64_t fingerprint, const HostTransport& names, const WaitPolicy& policy);
  void send(int rank, const Header& header, const std::string& reason = {});
  std::optional<Message> receive(int sender);
  void tell_others(const Header& header, const std::string& reason = {});
  [[noreturn]] void give_up(const std::string& reason);

  MPI_Comm comm_;
  const FirstFailure& aborted_;
  int rank_ = 0;
  int world_size_ = 1;
  std::uint64_t meeting_ = 0;
};

}  // namespace libtrain::detail
