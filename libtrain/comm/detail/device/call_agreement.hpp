#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/comm/detail/call.hpp>

namespace libtrain::detail {

/// Checks that all ranks make the same calls, for a backend that would hang or mix up data if they do not. Costs an
/// exchange between the hosts, so release builds compare the first 16 collectives and then every 64th.
class CallAgreement {
 public:
  /// Only this rank's calling thread uses `control`.
  explicit CallAgreement(std::shared_ptr<Communicator> control) : control_(std::move(control)) {}

  /// Counts a collective, and compares some of them, with their labels. Returns its number.
  std::uint64_t next_collective(const Call& call, const CallOptions& options = {}, const std::string& label = {});

  /// Counts a collective that is not compared. Returns its number.
  std::uint64_t next_uncompared_collective() { return collectives_++; }

  /// Returns when all ranks have called it. Throws CommunicationError on all ranks, which shows who called what, if
  /// they make different calls, or the same call after different numbers of collectives.
  void compare(const Call& call, const CallOptions& options = {}, const std::string& label = {});

 private:
  std::vector<std::string> exchange(const Call& call, const std::string& mine, const CallOptions& options);

  std::shared_ptr<Communicator> control_;
  std::uint64_t collectives_ = 0;
};

}  // namespace libtrain::detail
