#include <libtrain/comm/detail/tcp/socket.hpp>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

// Ranks of a large job connect at once.
constexpr int kBacklog = 4096;

// A host that lost its power says nothing: it counts as lost after 10 + 3 * 5 s.
constexpr int kIdleBeforeProbe_s = 10;
constexpr int kProbeInterval_s = 5;
constexpr int kProbes = 3;

void set_option(int socket, int level, int option, int value) {
  if (setsockopt(socket, level, option, &value, sizeof(value)) != 0) throw_system_error("setsockopt");
}

FileDescriptor make_socket(int family) {
  FileDescriptor socket{::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  if (!socket.is_open()) throw_system_error("socket");
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
                                "): a rank needs two for every other rank; raise it with ulimit -n."));
  }
  throw EnvironmentError(text("The system call ", call, " failed: ", std::strerror(code), "."));
}

void raise_open_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

FileDescriptor listen_at(const SocketAddress& address) {
  auto socket = make_socket(address.family());
  // A listener that ended a moment ago must not keep its port from the next one.
  set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(socket.get(), address.get(), address.length()) != 0 || listen(socket.get(), kBacklog) != 0) {
    if (errno == EADDRINUSE) {
      throw EnvironmentError(text("Port ", address.port(), " at ", address.name(),
                                  " is taken by another program or job: choose another port (MASTER_PORT, or that of "
                                  "--dist-url)."));
    }
    throw EnvironmentError(
        text("Cannot listen at ", address.name(), ": ", std::strerror(errno),
             errno == EADDRNOTAVAIL ? ": rank 0 must run on the host that MASTER_ADDR names." : "."));
  }
  return socket;
}

FileDescriptor begin_connect(const SocketAddress& address) {
  auto socket = make_socket(address.family());
  tune(socket);
  if (connect(socket.get(), address.get(), address.length()) == 0) return socket;
  // A socket that has not even begun to connect gets ready too, and without an error.
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
    return socket;  // no peer waits, or the one that waited has left
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

SocketAddress local_address(const FileDescriptor& socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) throw_system_error("getsockname");
  return SocketAddress{reinterpret_cast<const sockaddr*>(&storage), length};
}

}  // namespace libtrain::detail
