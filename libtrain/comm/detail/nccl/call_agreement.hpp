#pragma once

#include <cstdint>
#include <memory>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/comm/detail/call.hpp>

namespace libtrain::detail {

/// Finds out whether all ranks make the same calls, for a backend that would hang or mix up data where they do not.
/// Costs an exchange between the hosts, so release builds compare the first 16 collectives and then every 64th.
class CallAgreement {
 public:
  /// `control` is used by this rank's calling thread only.
  explicit CallAgreement(std::shared_ptr<Communicator> control) : control_(std::move(control)) {}

  /// Counts a collective and, now and then, compares. Returns its number.
  std::uint64_t next_collective(const Call& call, const CallOptions& options = {});

  /// Returns when all ranks have come here. Throws CommunicationError, on all ranks, that shows who called what where
  /// they came with different calls or after different numbers of collectives.
  void compare(const Call& call, const CallOptions& options = {});

 private:
  std::shared_ptr<Communicator> control_;
  std::uint64_t collectives_ = 0;
};

}  // namespace libtrain::detail
