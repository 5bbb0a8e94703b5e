#pragma once

#include <string>
#include <vector>

#include <libtrain/base/clock.hpp>

namespace libtrain::detail {

/// Exchanges the records that ranks need before they can connect to each other. Carries secrets.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  /// The records of all ranks, in rank order. All ranks must call it, equally often. Throws EnvironmentError if the
  /// ranks do not belong together, CommunicationError if some do not connect before the deadline.
  virtual std::vector<std::string> all_gather(const std::string& own, const Deadline& deadline) = 0;

  /// Called once this rank has connected to all others.
  virtual void leave() noexcept {}
};

}  // namespace libtrain::detail
