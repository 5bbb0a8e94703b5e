#include <libtrain/comm/detail/tcp/agent_store_endpoint.hpp>

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <functional>
#include <thread>
#include <utility>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/tcp/call_with_deadline.hpp>
#include <libtrain/comm/detail/tcp/local_address.hpp>
#include <libtrain/launch/detail/host.hpp>

namespace libtrain::detail {

namespace {

using std::chrono::milliseconds;

using StorePointer = c10::intrusive_ptr<c10d::Store>;

// Whole milliseconds, as c10d expects them: at least one, because 0 means no timeout, and no more than it can pass to
// poll(2).
milliseconds time_left(const Deadline& deadline) {
  const auto left = std::min<Deadline::Clock::duration>(deadline.remaining(), std::chrono::hours(24 * 20));
  return std::max(std::chrono::ceil<milliseconds>(left), milliseconds(1));
}

// Without the C++ stack trace that c10d appends.
std::string first_line(const std::exception& error) {
  const std::string message = error.what();
  return message.substr(0, message.find('\n'));
}

// The errno of a connection to `address`; 0 if it succeeds.
int try_connection(const SocketAddress& address, const Deadline& deadline) {
  constexpr milliseconds kConnectTimeout{2000};
  const auto socket = begin_connect(address);
  if (!socket.is_open()) return errno;
  pollfd ready{.fd = socket.get(), .events = POLLOUT, .revents = 0};
  const auto wait = std::min(time_left(deadline), kConnectTimeout);
  return poll(&ready, 1, static_cast<int>(wait.count())) == 1 ? connection_error(socket) : ETIMEDOUT;
}

class AgentStoreEndpoint : public RendezvousEndpoint {
 public:
  AgentStoreEndpoint(const std::string& url, const std::string& run, TcpOptions options)
      : agent_(open_tcp_endpoint(url)), key_(text("libtrain/", run, "/rank 0")), options_(std::move(options)) {}

  std::string name() const override { return agent_->name(); }
  bool is_trusted() const override { return false; }

  FileDescriptor serve(const Deadline& deadline) override {
    auto listener = listen_at(address_of_rank_0(options_, deadline));
    const auto note = local_address(listener).name();
    ask(deadline, "stored its address", [key = key_, note](c10d::Store& store) {
      store.set(key, note);
      return std::string{};
    });
    return listener;
  }

  std::vector<SocketAddress> find(const Deadline& deadline) override {
    const auto note = ask(deadline, "asked for rank 0", [key = key_](c10d::Store& store) {
      if (!store.check({key})) return std::string{};
      const auto bytes = store.get(key);
      return std::string{bytes.begin(), bytes.end()};
    });
    const auto address = SocketAddress::parse(note);
    return address ? std::vector{*address} : std::vector<SocketAddress>{};
  }

 private:
  // Most calls of c10d to a store wait without a timeout.
  std::string ask(const Deadline& deadline, const std::string& what,
                  const std::function<std::string(c10d::Store&)>& request) {
    constexpr milliseconds kGraceTime{2000};
    const auto wait = time_left(deadline);
    try {
      if (!store_) store_ = open(deadline);
      auto answer =
          call_with_deadline(deadline.later_by(kGraceTime), [store = store_, request] { return request(*store); });
      if (answer) return *answer;
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw CommunicationError(text("The store of the torchrun agent at ", name(), " failed (", first_line(error),
                                    "). Check that the agent is running and that no other program listens at that "
                                    "port."));
    }
    throw CommunicationError(text("The torchrun agent at ", name(), " did not answer within ",
                                  std::chrono::duration<double>(wait).count(), " s when this rank ", what,
                                  ". Check that the agent is not stopped and that no other program listens at that "
                                  "port."));
  }

  StorePointer open(const Deadline& deadline) const {
    const auto address = wait_for_agent(deadline);
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(address.port());
    options.waitWorkers = false;
    options.timeout = time_left(deadline);
    const auto host = parse_host_port(address.name())->host;
    auto store = call_with_deadline(
        deadline, [host, options]() -> StorePointer { return c10::make_intrusive<c10d::TCPStore>(host, options); });
    if (store) return std::move(*store);
    throw CommunicationError(text("The torchrun agent at ", name(),
                                  " accepts connections but does not answer. Check that it is not stopped and that no "
                                  "other program listens at that port."));
  }

  // c10d's own wait fills the log and takes up to twice its timeout.
  SocketAddress wait_for_agent(const Deadline& deadline) const {
    constexpr milliseconds kPause{100};
    const Stopwatch stopwatch;
    while (true) {
      int code = 0;
      for (const auto& address : agent_->find(deadline)) {
        code = try_connection(address, deadline);
        if (code == 0) return address;
      }
      if (deadline.expired()) {
        throw CommunicationError(text("The torchrun agent did not accept a connection at ", name(), " within ",
                                      stopwatch.seconds(), " s (", std::strerror(code),
                                      "). Check that the agent is running and that no firewall blocks the port."));
      }
      std::this_thread::sleep_for(std::min(kPause, time_left(deadline)));
    }
  }

  std::unique_ptr<RendezvousEndpoint> agent_;
  std::string key_;
  TcpOptions options_;
  StorePointer store_;
};

}  // namespace

std::unique_ptr<RendezvousEndpoint> open_agent_store_endpoint(const std::string& url, const std::string& run,
                                                              const TcpOptions& options) {
  return std::make_unique<AgentStoreEndpoint>(url, run, options);
}

}  // namespace libtrain::detail
