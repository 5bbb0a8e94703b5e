#pragma once

#include <string_view>

#include <libtrain/base/file_descriptor.hpp>
#include <libtrain/comm/detail/tcp/socket_address.hpp>

namespace libtrain::detail {

/// Throws EnvironmentError that says what the system call named `call` met (errno); "too many open files" says what to
/// do about it.
[[noreturn]] void throw_system_error(std::string_view call);

/// Raises this process's limit of open files as far as it may itself.
void raise_open_file_limit();

/// A socket that accepts connections at `address`; port 0 lets the system choose. Throws EnvironmentError where the
/// port is taken.
FileDescriptor listen_at(const SocketAddress& address);

/// A socket on its way to `address`: writable once it is there or has failed (see connection_error). Nothing, and errno
/// says why, where it fails at once.
FileDescriptor begin_connect(const SocketAddress& address);

/// The next connection to `listener`, or nothing where none waits.
FileDescriptor accept_from(const FileDescriptor& listener, SocketAddress& remote);

/// Why a connection failed, 0 where it did not.
int connection_error(const FileDescriptor& socket);

SocketAddress local_address(const FileDescriptor& socket);

}  // namespace libtrain::detail
