#pragma once

#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

#include <libtrain/base/clock.hpp>

namespace libtrain::detail {

/// An IPv4 or IPv6 address with a port.
class SocketAddress {
 public:
  SocketAddress() = default;
  SocketAddress(const sockaddr* address, socklen_t length);

  /// Parses the format of `name()`: "10.0.0.4:29500", "[fe80::1%eth0]:29500". std::nullopt for anything else.
  static std::optional<SocketAddress> parse(const std::string& name);

  /// All addresses of a host name. A name that does not resolve yet is looked up again until the deadline, with a
  /// warning after five seconds; the system's resolver limits the time of each look-up. Throws CommunicationError that
  /// names the host.
  static std::vector<SocketAddress> resolve(const std::string& host, int port, const Deadline& deadline);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t length() const { return length_; }
  int family() const { return storage_.ss_family; }

  int port() const;
  SocketAddress with_port(int port) const;

  bool is_loopback() const;
  bool is_link_local() const;
  /// 0.0.0.0 or ::, the wildcard addresses.
  bool is_unspecified() const;

  std::string name() const;

 private:
  sockaddr_storage storage_{};
  socklen_t length_ = 0;
};

}  // namespace libtrain::detail
