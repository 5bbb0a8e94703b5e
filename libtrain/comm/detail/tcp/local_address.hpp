#pragma once

#include <string>
#include <vector>

#include <libtrain/comm/detail/tcp/socket_address.hpp>
#include <libtrain/comm/detail/tcp/tcp_options.hpp>

namespace libtrain::detail {

/// Equal for processes that reach each other over loopback: the same boot of the same machine and network namespace.
std::string network_place();

/// The address of this host, with port 0, to which its peers connect: see TcpOptions. Throws EnvironmentError for an
/// interface that does not exist or has no address, and for a master address that is not found or is a wildcard address
/// (0.0.0.0, ::).
SocketAddress choose_local_address(const TcpOptions& options, bool all_ranks_are_here, const Deadline& deadline);

/// The address at which rank 0 listens if the other ranks know it as `host`: an address of this machine that other
/// hosts can reach, even if the name means loopback here (Debian's /etc/hosts) or a machine that forwards the port
/// (containers). Throws EnvironmentError for a host that is not found or is a wildcard address.
SocketAddress address_to_serve(const std::string& host, int port, const Deadline& deadline);

/// The addresses at which peers on this and other hosts reach the listener at `address_to_serve`, with the same errors.
std::vector<SocketAddress> addresses_to_reach(const std::string& host, int port, const Deadline& deadline);

/// The address at which rank 0 listens, with port 0, if it can send it to the other ranks: that of the interface or of
/// the route to the master of `options`, that of the default route, or loopback on a host without one. Throws as
/// choose_local_address does.
SocketAddress address_of_rank_0(const TcpOptions& options, const Deadline& deadline);

/// Whether this host has the address, whatever its port.
bool is_of_this_host(const SocketAddress& address);

}  // namespace libtrain::detail
