#pragma once

#include <string>
#include <vector>

#include <libtrain/comm/detail/tcp/socket_address.hpp>
#include <libtrain/comm/detail/tcp/tcp_options.hpp>

namespace libtrain::detail {

/// Equal for processes that reach each other over loopback: the same boot of the same machine and network namespace.
std::string network_place();

/// The address of this host, with port 0, at which its peers shall find it: see TcpOptions. Throws EnvironmentError for
/// an interface that does not exist or has no address, and for a master address that is not found or stands for all
/// addresses of a host (0.0.0.0, ::).
SocketAddress choose_local_address(const TcpOptions& options, bool all_ranks_are_here, const Deadline& deadline);

/// Where rank 0 listens when it is told to be found at `host`: an address of this machine that other hosts reach, also
/// where the name stands for loopback here (Debian's /etc/hosts) or for a machine that passes the port on (containers).
/// Throws EnvironmentError for a host that is not found or stands for all addresses.
SocketAddress address_to_serve(const std::string& host, int port, const Deadline& deadline);

/// The addresses at which `address_to_serve` listens for peers on this host and others. Throws as that does.
std::vector<SocketAddress> addresses_to_reach(const std::string& host, int port, const Deadline& deadline);

/// Where rank 0 listens when it can tell the others where, with port 0: at the interface or towards the master of
/// `options`, at the address of the default route, or at loopback on a host without any. Throws as
/// choose_local_address.
SocketAddress address_of_rank_0(const TcpOptions& options, const Deadline& deadline);

/// Whether this host has the address, whatever its port.
bool is_of_this_host(const SocketAddress& address);

}  // namespace libtrain::detail
