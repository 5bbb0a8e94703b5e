#pragma once

#include <poll.h>

#include <string>
#include <string_view>
#include <vector>

#include <libtrain/base/file_descriptor.hpp>
#include <libtrain/comm/detail/tcp/socket_address.hpp>

namespace libtrain::detail {

/// Throws EnvironmentError with the system call's name, `call`, and its error (errno). For "too many open files" the
/// message says what to do.
[[noreturn]] void throw_system_error(std::string_view call);

/// A socket that accepts connections at `address`; port 0 lets the system choose. Throws EnvironmentError if the port
/// is in use.
FileDescriptor listen_at(const SocketAddress& address);

/// A socket that connects to `address`: writable once it has connected or failed (see connection_error). Not open, with
/// errno set, if it fails at once.
FileDescriptor begin_connect(const SocketAddress& address);

/// The next connection to `listener`; not open if there is none.
FileDescriptor accept_from(const FileDescriptor& listener, SocketAddress& remote);

/// The error of a connection that failed; 0 if it did not.
int connection_error(const FileDescriptor& socket);

/// Sends as much of `outbox` as possible without waiting, and removes it. False, with errno set, if the connection has
/// failed.
bool send_queued(int socket, std::string& outbox);

/// Waits until a descriptor is ready, at most until the deadline and at most for 50 ms.
void poll_briefly(std::vector<pollfd>& polled, const Deadline& deadline);

SocketAddress local_address(const FileDescriptor& socket);

}  // namespace libtrain::detail
