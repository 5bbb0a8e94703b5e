#pragma once

#include <string_view>
#include <utility>

#include <libtrain/comm/tcp/socket_address.hpp>

namespace libtrain::detail {

/// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;

  int get() const { return number_; }
  bool valid() const { return number_ >= 0; }
  int release() { return std::exchange(number_, -1); }
  void reset() noexcept;

 private:
  int number_ = -1;
};

/// Throws EnvironmentError that says what the system call named `call` met (errno); "too many open files" says what to
/// do about it.
[[noreturn]] void throw_system_error(std::string_view call);

/// A socket that accepts connections at `address`; port 0 lets the system choose. Throws EnvironmentError where the
/// port is taken.
Descriptor listen_at(const SocketAddress& address);

/// A socket on its way to `address`: writable once it is there or has failed (see connection_error). Nothing, and errno
/// says why, where it fails at once.
Descriptor begin_connect(const SocketAddress& address);

/// The next connection to `listener`, or nothing where none waits.
Descriptor accept_from(const Descriptor& listener, SocketAddress& remote);

/// Why a connection failed, 0 where it did not.
int connection_error(const Descriptor& socket);

SocketAddress local_address(const Descriptor& socket);

}  // namespace libtrain::detail
