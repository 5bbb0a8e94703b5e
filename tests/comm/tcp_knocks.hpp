#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <string>

#include <gtest/gtest.h>

#include <libtrain/comm/detail/tcp/socket.hpp>

namespace libtrain::test {

inline detail::SocketAddress any_port_of_loopback() {
  return detail::SocketAddress::parse("127.0.0.1:1").value().with_port(0);
}

/// False if it takes longer than any test.
inline bool wait_for(int descriptor, short events) {
  pollfd ready{.fd = descriptor, .events = events, .revents = 0};
  return poll(&ready, 1, 20'000) == 1;
}

/// A connection to the listener at `address`.
inline detail::FileDescriptor knock(const std::string& address) {
  auto socket = detail::begin_connect(detail::SocketAddress::parse(address).value());
  EXPECT_TRUE(socket.is_open() && wait_for(socket.get(), POLLOUT));
  return socket;
}

inline void say(const detail::FileDescriptor& socket, const std::string& words) {
  EXPECT_EQ(send(socket.get(), words.data(), words.size(), MSG_NOSIGNAL), static_cast<ssize_t>(words.size()));
}

/// Whether the other side closes the connection without an answer.
inline bool is_dropped(const detail::FileDescriptor& socket) {
  char byte = 0;
  return wait_for(socket.get(), POLLIN) && recv(socket.get(), &byte, 1, MSG_DONTWAIT) <= 0;
}

}  // namespace libtrain::test
