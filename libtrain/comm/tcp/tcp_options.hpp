#pragma once

#include <string>

namespace libtrain {

/// Which of this host's addresses the peers connect to. It is always one address, never the wildcard.
struct TcpOptions {
  /// Name of a network interface: "eth0". Wins over everything else.
  std::string interface = {};

  /// The host of rank 0: the address that routes to it is used, loopback where it is loopback. Where this is empty too:
  /// loopback if all ranks are on this host, otherwise the address of the default route.
  std::string master_address = {};
};

}  // namespace libtrain
