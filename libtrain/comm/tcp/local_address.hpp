#pragma once

#include <string>

#include <libtrain/comm/tcp/socket_address.hpp>
#include <libtrain/comm/tcp/tcp_options.hpp>

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

/// What to call `host` when connecting to it from here: the name itself, but for what `address_to_serve` replaces.
/// Throws as that does.
std::string host_to_reach(const std::string& host, const Deadline& deadline);

}  // namespace libtrain::detail
