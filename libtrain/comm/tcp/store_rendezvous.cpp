#include <libtrain/comm/tcp/store_rendezvous.hpp>

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/tcp/local_address.hpp>
#include <libtrain/comm/tcp/socket.hpp>
#include <libtrain/launch/host.hpp>

namespace libtrain {

namespace {

using std::chrono::milliseconds;

constexpr std::string_view kFileScheme = "file://";
constexpr std::string_view kTcpScheme = "tcp://";

// c10d takes 0 for no bound at all.
milliseconds time_left(const Deadline& deadline) {
  const auto left = std::min<Deadline::Clock::duration>(deadline.remaining(), std::chrono::hours(24 * 365));
  return std::max(std::chrono::ceil<milliseconds>(left), milliseconds(1));
}

double seconds(milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

// The first line, without the C++ stack that c10 appends.
std::string first_line(const std::exception& error) {
  const std::string message = error.what();
  return message.substr(0, message.find('\n'));
}

c10::intrusive_ptr<c10d::Store> open_file_store(const StorePlace& place) {
  const auto path = place.url.substr(kFileScheme.size());
  // FileStore would wait for a folder that is not there, and would let other users read the job's secret.
  const detail::Descriptor file{open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR)};
  if (!file.valid()) {
    throw EnvironmentError(text("Cannot write the rendezvous file '", path, "' (", std::strerror(errno),
                                "): give a path in an existing folder that all hosts share."));
  }
  try {
    return c10::make_intrusive<c10d::FileStore>(path, place.world_size);
  } catch (const std::exception& error) {
    throw EnvironmentError(text("The rendezvous file '", path, "' cannot be used (", first_line(error),
                                "): it needs a file system with locks, and must not hold anything else."));
  }
}

bool answers(const detail::SocketAddress& address, const Deadline& deadline) {
  constexpr milliseconds kAnswerTime{2000};
  const auto socket = detail::begin_connect(address);
  pollfd ready{.fd = socket.get(), .events = POLLOUT, .revents = 0};
  const auto patience = std::min(time_left(deadline), kAnswerTime);
  return poll(&ready, 1, static_cast<int>(patience.count())) == 1 && detail::connection_error(socket) == 0;
}

// c10d's own waiting fills the log and takes up to twice the time it is given.
void wait_for_server(const StorePlace& place, const std::string& host, int port, const Deadline& deadline) {
  constexpr milliseconds kPause{100};
  const auto patience = seconds(time_left(deadline));
  while (true) {
    const auto known = detail::SocketAddress::resolve(host, port, deadline);
    if (std::any_of(known.begin(), known.end(), [&](const auto& address) { return answers(address, deadline); }))
      return;
    if (deadline.expired()) {
      throw CommunicationError(text("Nobody serves the rendezvous at ", place.url, " within ", patience,
                                    " s: rank 0 did not start there, or a firewall is between the hosts."));
    }
    std::this_thread::sleep_for(std::min(kPause, time_left(deadline)));
  }
}

c10::intrusive_ptr<c10d::Store> open_tcp_store(const StorePlace& place, const Deadline& deadline) {
  const auto parsed = detail::parse_host_port(std::string_view{place.url}.substr(kTcpScheme.size()));
  if (!parsed || !parsed->port) throw UsageError(text("'", place.url, "' is not tcp://host:port."));
  auto host = detail::host_to_reach(parsed->host, deadline);
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(*parsed->port);
  options.waitWorkers = false;
  if (place.rank == 0 && !place.agent_hosts_store) {
    // c10d would listen on all interfaces; it takes over a socket that listens on one.
    const auto address = detail::address_to_serve(parsed->host, *parsed->port, deadline);
    host = detail::parse_host_port(address.name())->host;
    options.isServer = true;
    options.masterListenFd = detail::listen_at(address).release();
  } else {
    wait_for_server(place, host, *parsed->port, deadline);
  }
  options.timeout = time_left(deadline);
  try {
    return c10::make_intrusive<c10d::TCPStore>(host, options);
  } catch (const std::exception& error) {
    throw CommunicationError(text("What listens at ", place.url, " is no store of PyTorch, or rank 0 has ended (",
                                  first_line(error), "): choose another port."));
  }
}

c10::intrusive_ptr<c10d::Store> open_store(const StorePlace& place, const Deadline& deadline) {
  if (place.url.starts_with(kTcpScheme)) return open_tcp_store(place, deadline);
  if (place.url.starts_with(kFileScheme)) return open_file_store(place);
  throw UsageError(text("Ranks cannot meet at '", place.url, "': give tcp://host:port or file:///path."));
}

}  // namespace

struct StoreRendezvous::State {
  c10::intrusive_ptr<c10d::Store> store;
};

StorePlace StorePlace::of(const Launch& launch, const Environment& environment) {
  StorePlace place{.url = launch.rendezvous.value, .rank = launch.rank.value, .world_size = launch.world_size.value};
  if (environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True") {
    place.agent_hosts_store = true;
    place.prefix = text("libtrain/", environment.get("TORCHELASTIC_RUN_ID").value_or(""), "/",
                        environment.get("TORCHELASTIC_RESTART_COUNT").value_or("0"));
  }
  return place;
}

StoreRendezvous::StoreRendezvous(const StorePlace& place, const Deadline& deadline) : url_(place.url) {
  state_ = std::make_unique<State>(
      State{.store = c10::make_intrusive<c10d::PrefixStore>(place.prefix, open_store(place, deadline))});
}

StoreRendezvous::~StoreRendezvous() = default;

void StoreRendezvous::set(const std::string& key, const std::string& bytes) {
  std::string kept;
  try {
    // Of two processes with one key, one gets the other's bytes.
    kept = state_->store->compareSet(key, "", bytes);
  } catch (const std::exception& error) {
    throw CommunicationError(
        text("Cannot register ", key, " at ", url_, ": the process of rank 0 has ended (", first_line(error), ")."));
  }
  if (kept == bytes) return;
  const bool is_file = url_.starts_with(kFileScheme);
  throw EnvironmentError(text("At ", url_, " ", key, " is registered already: ",
                              is_file ? "the file is left from an earlier job, which did not end in good order, or "
                                        "another job uses it; remove it or give another path."
                                      : "two processes have the same rank, or another job meets there; give each job a "
                                        "port of its own."));
}

std::string StoreRendezvous::get(const std::string& key, const Deadline& deadline) {
  const auto patience = time_left(deadline);
  try {
    state_->store->wait({key}, patience);
    const auto bytes = state_->store->get(key);
    return {bytes.begin(), bytes.end()};
  } catch (const std::exception& error) {
    throw CommunicationError(text(key, " was not registered at ", url_, " within ", seconds(patience),
                                  " s: that process did not start, has ended or cannot reach the place (",
                                  first_line(error), ")."));
  }
}

}  // namespace libtrain
