#include <libtrain/comm/tcp/open_store.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <libtrain/base/text.hpp>
#include <libtrain/comm/tcp/call_with_deadline.hpp>
#include <libtrain/comm/tcp/local_address.hpp>
#include <libtrain/comm/tcp/socket.hpp>
#include <libtrain/launch/host.hpp>

namespace libtrain::detail {

namespace {

using std::chrono::milliseconds;

constexpr std::string_view kFileScheme = "file://";
constexpr std::string_view kTcpScheme = "tcp://";

// FileStore would wait for a folder that is not there, and would leave the job's secret in a file that somebody else
// has made or can read.
void claim_file(const std::string& path) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;  // a pipe would block
  const FileDescriptor file{open(path.c_str(), kFlags, S_IRUSR | S_IWUSR)};
  if (!file.is_open()) {
    throw EnvironmentError(text("Cannot write the rendezvous file '", path, "' (", std::strerror(errno),
                                "): give a path in an existing folder that all hosts share, and no symbolic link."));
  }
  struct stat status{};
  if (fstat(file.get(), &status) != 0) throw_system_error("fstat");
  if (!S_ISREG(status.st_mode)) {
    throw EnvironmentError(text("The rendezvous file '", path, "' is no regular file: give another path."));
  }
  if (status.st_uid != geteuid()) {
    throw EnvironmentError(text("The rendezvous file '", path, "' belongs to user ", status.st_uid,
                                ", and this process to user ", geteuid(), ": delete it, or give another path."));
  }
  // Whoever has opened it already could read on after a chmod.
  const auto mode = status.st_mode & 0777;
  if ((mode & 077) != 0) {
    throw EnvironmentError(text("The rendezvous file '", path, "' is open to other users (mode 0", mode >> 6,
                                (mode >> 3) & 7, mode & 7,
                                "), who could join the job: delete it, or give a path where files can be private."));
  }
}

c10::intrusive_ptr<c10d::Store> open_file_store(const std::string& path, int world_size) {
  claim_file(path);
  try {
    return c10::make_intrusive<c10d::FileStore>(path, world_size);
  } catch (const std::exception& error) {
    throw EnvironmentError(text("The rendezvous file '", path, "' cannot be used (", first_line(error),
                                "): it needs a file system with locks, and must not hold anything else."));
  }
}

// 0, or the error of the system for a connection to `address`.
int try_connection(const SocketAddress& address, const Deadline& deadline) {
  constexpr milliseconds kAnswerTime{2000};
  const auto socket = begin_connect(address);
  if (!socket.is_open()) return errno;
  pollfd ready{.fd = socket.get(), .events = POLLOUT, .revents = 0};
  const auto patience = std::min(time_left(deadline), kAnswerTime);
  return poll(&ready, 1, static_cast<int>(patience.count())) == 1 ? connection_error(socket) : ETIMEDOUT;
}

// c10d's own waiting fills the log and takes up to twice the time it is given.
void wait_for_server(const StorePlace& place, const std::string& host, int port, const Deadline& deadline) {
  constexpr milliseconds kPause{100};
  const auto patience = seconds(time_left(deadline));
  while (true) {
    int trouble = 0;
    for (const auto& address : SocketAddress::resolve(host, port, deadline)) {
      trouble = try_connection(address, deadline);
      if (trouble == 0) return;
    }
    if (deadline.expired()) {
      throw CommunicationError(text("Nobody serves the rendezvous at ", place.url, " within ", patience, " s (",
                                    std::strerror(trouble), "): ", server_of(place),
                                    " did not start there, or a firewall is between the hosts."));
    }
    std::this_thread::sleep_for(std::min(kPause, time_left(deadline)));
  }
}

std::optional<c10::intrusive_ptr<c10d::Store>> open_tcp_store(const StorePlace& place, const Deadline& deadline) {
  const auto parsed = parse_host_port(std::string_view{place.url}.substr(kTcpScheme.size()));
  if (!parsed || !parsed->port) throw UsageError(text("'", place.url, "' is not tcp://host:port."));
  auto host = host_to_reach(parsed->host, deadline);
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(*parsed->port);
  options.waitWorkers = false;
  if (place.rank == 0 && !place.agent_hosts_store) {
    // c10d would listen on all interfaces; it takes over a socket that listens on one.
    const auto address = address_to_serve(parsed->host, *parsed->port, deadline);
    host = parse_host_port(address.name())->host;
    options.isServer = true;
    options.masterListenFd = listen_at(address).release();
  } else {
    wait_for_server(place, host, *parsed->port, deadline);
  }
  options.timeout = time_left(deadline);
  try {
    return call_with_deadline(deadline, [host, options]() -> c10::intrusive_ptr<c10d::Store> {
      return c10::make_intrusive<c10d::TCPStore>(host, options);
    });
  } catch (const std::exception& error) {
    throw CommunicationError(text("What listens at ", place.url, " is no store of PyTorch, or ", server_of(place),
                                  " has ended (", first_line(error), "): choose another port."));
  }
}

}  // namespace

c10::intrusive_ptr<c10d::Store> open_store(const StorePlace& place, const Deadline& deadline) {
  const auto patience = time_left(deadline);
  std::optional<c10::intrusive_ptr<c10d::Store>> store;
  if (place.url.starts_with(kTcpScheme)) {
    store = open_tcp_store(place, deadline);
  } else if (is_file(place)) {
    store = call_with_deadline(
        deadline, [path = path_of(place), ranks = place.world_size] { return open_file_store(path, ranks); });
  } else {
    throw UsageError(text("Ranks cannot meet at '", place.url, "': give tcp://host:port or file:///path."));
  }
  if (!store) throw no_answer(place, "opened it", patience);
  return std::move(*store);
}

bool is_file(const StorePlace& place) {
  return place.url.starts_with(kFileScheme);
}

std::string path_of(const StorePlace& place) {
  return place.url.substr(kFileScheme.size());
}

std::string server_of(const StorePlace& place) {
  return place.agent_hosts_store ? "torchrun's agent" : "rank 0";
}

milliseconds time_left(const Deadline& deadline) {
  const auto left = std::min<Deadline::Clock::duration>(deadline.remaining(), std::chrono::hours(24 * 20));
  return std::max(std::chrono::ceil<milliseconds>(left), milliseconds(1));
}

double seconds(milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

std::string first_line(const std::exception& error) {
  const std::string message = error.what();
  return message.substr(0, message.find('\n'));
}

CommunicationError no_answer(const StorePlace& place, const std::string& request, milliseconds patience) {
  const auto silence = text(place.url, " did not answer within ", seconds(patience), " s when this rank ", request);
  if (is_file(place)) {
    return CommunicationError(text("The rendezvous file ", silence,
                                   ": a stopped process holds its lock, its file system hangs, or it holds something "
                                   "else; delete it, or give another path."));
  }
  const auto server = server_of(place);
  return CommunicationError(text("The rendezvous at ", silence, ": ", server,
                                 " is stopped, or another program listens there; look at ", server,
                                 ", or choose another port."));
}

}  // namespace libtrain::detail
