#pragma once

#include <string>

namespace libtrain::detail {

/// The address of this host that peers connect to (one address, never the wildcard), and the encryption.
struct TcpOptions {
  /// Name of a network interface, such as "eth0". Takes precedence over master_address.
  std::string interface = {};

  /// The host of rank 0, by name or by one of its addresses: the address that routes to it is used, which is loopback
  /// if it is loopback. 0.0.0.0 and :: are refused with EnvironmentError. If this is empty, too: loopback if all ranks
  /// are on this host, otherwise the address of the default route.
  std::string master_address = {};

  /// Whether the connections are encrypted and authenticated (AES-256-GCM). It must be the same on all ranks.
  bool encrypt = false;
};

}  // namespace libtrain::detail
