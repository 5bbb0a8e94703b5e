#include <libtrain/comm/detail/tcp/agent_store_place.hpp>

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

constexpr std::string_view kScheme = "tcp://";

// Whole milliseconds, as c10d wants them: at least one, for it takes 0 for no bound at all, and no more than it can
// hand to poll(2).
milliseconds time_left(const Deadline& deadline) {
  const auto left = std::min<Deadline::Clock::duration>(deadline.remaining(), std::chrono::hours(24 * 20));
  return std::max(std::chrono::ceil<milliseconds>(left), milliseconds(1));
}

// Without the C++ stack that c10d appends.
std::string first_line(const std::exception& error) {
  const std::string message = error.what();
  return message.substr(0, message.find('\n'));
}

// 0, or the error of the system for a connection to `address`.
int try_connection(const SocketAddress& address, const Deadline& deadline) {
  constexpr milliseconds kAnswerTime{2000};
  const auto socket = begin_connect(address);
  if (!socket.is_open()) return errno;
  pollfd ready{.fd = socket.get(), .events = POLLOUT, .revents = 0};
  const auto wait = std::min(time_left(deadline), kAnswerTime);
  return poll(&ready, 1, static_cast<int>(wait.count())) == 1 ? connection_error(socket) : ETIMEDOUT;
}

class AgentStorePlace : public RendezvousPlace {
 public:
  AgentStorePlace(std::string url, const std::string& run, TcpOptions options)
      : url_(std::move(url)), key_(text("libtrain/", run, "/rank 0")), options_(std::move(options)) {}

  std::string name() const override { return url_; }
  bool is_trusted() const override { return false; }

  FileDescriptor serve(const Deadline& deadline) override {
    auto listener = listen_at(address_of_rank_0(options_, deadline));
    const auto note = local_address(listener).name();
    ask(deadline, "left its address", [key = key_, note](c10d::Store& store) {
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
  // c10d waits without a bound in most calls to a store.
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
      throw CommunicationError(text("torchrun's agent at ", url_,
                                    " has ended, or what listens there is not its store (", first_line(error), ")."));
    }
    throw CommunicationError(text("torchrun's agent at ", url_, " did not answer within ",
                                  std::chrono::duration<double>(wait).count(), " s when this rank ", what,
                                  ": it is stopped, or another program listens there."));
  }

  StorePointer open(const Deadline& deadline) const {
    const auto parsed = parse_host_port(std::string_view{url_}.substr(kScheme.size()));
    if (!parsed || !parsed->port) throw UsageError(text("'", url_, "' is not tcp://host:port."));
    const auto address = wait_for_agent(parsed->host, *parsed->port, deadline);
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(*parsed->port);
    options.waitWorkers = false;
    options.timeout = time_left(deadline);
    const auto host = parse_host_port(address.name())->host;
    auto store = call_with_deadline(
        deadline, [host, options]() -> StorePointer { return c10::make_intrusive<c10d::TCPStore>(host, options); });
    if (store) return std::move(*store);
    throw CommunicationError(text("torchrun's agent at ", url_,
                                  " accepts connections but does not answer: it is stopped, ",
                                  "or another program listens there."));
  }

  // c10d's own waiting fills the log and takes up to twice the time it is given.
  SocketAddress wait_for_agent(const std::string& host, int port, const Deadline& deadline) const {
    constexpr milliseconds kPause{100};
    const Stopwatch stopwatch;
    while (true) {
      int code = 0;
      for (const auto& address : addresses_to_reach(host, port, deadline)) {
        code = try_connection(address, deadline);
        if (code == 0) return address;
      }
      if (deadline.expired()) {
        throw CommunicationError(text("torchrun's agent was not found at ", url_, " within ", stopwatch.seconds(),
                                      " s (", std::strerror(code),
                                      "): it has ended, or a firewall is between the hosts."));
      }
      std::this_thread::sleep_for(std::min(kPause, time_left(deadline)));
    }
  }

  std::string url_;
  std::string key_;
  TcpOptions options_;
  StorePointer store_;
};

}  // namespace

std::unique_ptr<RendezvousPlace> open_agent_store_place(const std::string& url, const std::string& run,
                                                        const TcpOptions& options) {
  return std::make_unique<AgentStorePlace>(url, run, options);
}

}  // namespace libtrain::detail
