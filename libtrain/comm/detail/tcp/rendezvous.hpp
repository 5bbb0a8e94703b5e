#pragma once

#include <string>
#include <vector>

#include <libtrain/base/clock.hpp>

namespace libtrain::detail {

/// How ranks that are not connected yet tell each other what they need for it. Carries secrets.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  /// What every rank has given, in rank order. All ranks must call it, equally often. Throws EnvironmentError where
  /// ranks do not fit together, CommunicationError where some do not come before the deadline.
  virtual std::vector<std::string> all_gather(const std::string& own, const Deadline& deadline) = 0;

  /// This rank has connected to all others.
  virtual void leave() noexcept {}
};

}  // namespace libtrain::detail
