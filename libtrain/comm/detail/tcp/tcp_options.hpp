#pragma once

#include <string>

namespace libtrain::detail {

/// Which of this host's addresses the peers connect to, which is always one address and never the wildcard; and how.
struct TcpOptions {
  /// Name of a network interface: "eth0". Wins over everything else.
  std::string interface = {};

  /// The host of rank 0, by name or by one of its addresses: the address that routes to it is used, loopback where it
  /// is loopback. 0.0.0.0 and :: are refused with EnvironmentError. Where this is empty too: loopback if all ranks are
  /// on this host, otherwise the address of the default route.
  std::string master_address = {};

  /// Whether what goes over the connections is encrypted and authenticated (AES-256-GCM). All ranks must say the same.
  bool encrypt = false;
};

}  // namespace libtrain::detail
