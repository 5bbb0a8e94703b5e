#include <libtrain/comm/detail/tcp/socket.hpp>

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

// Ranks of a large job connect at once.
constexpr int kBacklog = 4096;

// A host that lost its power closes no connection: it counts as lost after 10 + 3 * 5 s.
constexpr int kIdleBeforeProbe_s = 10;
constexpr int kProbeInterval_s = 5;
constexpr int kProbes = 3;

void set_option(int socket, int level, int option, int value) {
  if (setsockopt(socket, level, option, &value, sizeof(value)) != 0) throw_system_error("setsockopt");
}

// Not open if this machine does not support the family, such as IPv6.
FileDescriptor make_socket(int family) {
  FileDescriptor socket{::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  if (!socket.is_open() && errno != EAFNOSUPPORT) throw_system_error("socket");
  return socket;
}

void tune(const FileDescriptor& socket) {
  set_option(socket.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket.get(), IPPROTO_TCP, TCP_KEEPIDLE, kIdleBeforeProbe_s);
  set_option(socket.get(), IPPROTO_TCP, TCP_KEEPINTVL, kProbeInterval_s);
  set_option(socket.get(), IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

}  // namespace

void throw_system_error(std::string_view call) {
  const int code = errno;
  if (code == EMFILE || code == ENFILE) {
    throw EnvironmentError(text("The limit of open files is reached (", call,
                                "); a rank needs two for every other rank. Raise the limit with ulimit -n."));
  }
  throw EnvironmentError(text("The system call ", call, " failed: ", std::strerror(code), "."));
}

FileDescriptor listen_at(const SocketAddress& address) {
  auto socket = make_socket(address.family());
  if (!socket.is_open()) throw_system_error("socket");
  // Otherwise the port stays in use for a while after its last listener was closed.
  set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(socket.get(), address.get(), address.length()) != 0 || listen(socket.get(), kBacklog) != 0) {
    if (errno == EADDRINUSE) {
      throw EnvironmentError(text("Port ", address.port(), " at ", address.name(),
                                  " is in use by another program or job. Choose another port (MASTER_PORT, or the port "
                                  "in --dist-url)."));
    }
    throw EnvironmentError(text("Cannot listen at ", address.name(), ": ", std::strerror(errno),
                                errno == EADDRNOTAVAIL ? ". Run rank 0 on the host that MASTER_ADDR names." : "."));
  }
  return socket;
}

FileDescriptor begin_connect(const SocketAddress& address) {
  auto socket = make_socket(address.family());
  if (!socket.is_open()) return socket;
  tune(socket);
  if (connect(socket.get(), address.get(), address.length()) == 0) return socket;
  // poll(2) would report a socket that has not begun to connect as ready, without an error.
  const int code = errno;
  if (code != EINPROGRESS && code != EINTR) socket.reset();
  errno = code;
  return socket;
}

FileDescriptor accept_from(const FileDescriptor& listener, SocketAddress& remote) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  FileDescriptor socket{
      accept4(listener.get(), reinterpret_cast<sockaddr*>(&storage), &length, SOCK_NONBLOCK | SOCK_CLOEXEC)};
  if (!socket.is_open()) {
    if (errno == EMFILE || errno == ENFILE || errno == EBADF || errno == EINVAL) throw_system_error("accept4");
    return socket;  // no peer waits, or it has closed the connection
  }
  tune(socket);
  remote = SocketAddress{reinterpret_cast<const sockaddr*>(&storage), length};
  return socket;
}

int connection_error(const FileDescriptor& socket) {
  int code = 0;
  socklen_t length = sizeof(code);
  if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &code, &length) != 0) return errno;
  return code;
}

bool send_queued(int socket, std::string& outbox) {
  std::size_t done = 0;
  ssize_t sent = 0;
  while (done < outbox.size()) {
    sent = send(socket, outbox.data() + done, outbox.size() - done, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) break;
    done += static_cast<std::size_t>(sent);
  }
  outbox.erase(0, done);
  return sent >= 0 || errno == EAGAIN;
}

void poll_briefly(std::vector<pollfd>& polled, const Deadline& deadline) {
  using std::chrono::milliseconds;
  const auto wait = std::min<Deadline::Clock::duration>(deadline.remaining(), milliseconds(50));
  const auto time = static_cast<int>(std::chrono::ceil<milliseconds>(wait).count());
  if (poll(polled.data(), polled.size(), time) < 0 && errno != EINTR) throw_system_error("poll");
}

SocketAddress local_address(const FileDescriptor& socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) throw_system_error("getsockname");
  return SocketAddress{reinterpret_cast<const sockaddr*>(&storage), length};
}

}  // namespace libtrain::detail
