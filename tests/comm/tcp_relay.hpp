#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <libtrain/base/text.hpp>

#include <tests/comm/tcp_knocks.hpp>

namespace libtrain::test {

/// Passes bytes between clients and a server on this host until stop(). From then on it sends nothing and closes no
/// connection, like a process that is stopped. `change` may change the bytes from a client to the server.
class Relay {
 public:
  using Change = std::function<void(std::string& bytes)>;

  explicit Relay(
      int port, Change change = [](std::string&) {})
      : server_(text("127.0.0.1:", port)), change_(std::move(change)), thread_([this] { serve(); }) {}
  ~Relay() { stop(); }
  Relay(const Relay&) = delete;  // the thread uses it
  Relay& operator=(const Relay&) = delete;

  detail::SocketAddress address() const { return detail::local_address(listener_); }

  /// No byte passes once this returns.
  void stop() {
    stopped_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  using Pair = std::array<detail::FileDescriptor, 2>;

  void serve() {
    while (!stopped_) {
      std::vector<pollfd> polled;
      polled.push_back({.fd = listener_.get(), .events = POLLIN, .revents = 0});
      for (const auto& pair : pairs_) {
        for (const auto& end : pair) polled.push_back({.fd = end.get(), .events = POLLIN, .revents = 0});
      }
      poll(polled.data(), polled.size(), 20);
      detail::SocketAddress remote;
      if (auto client = detail::accept_from(listener_, remote); client.is_open()) {
        pairs_.push_back({std::move(client), knock(server_)});
      }
      std::erase_if(pairs_, [this](const Pair& pair) {
        return !pass(pair[0], pair[1], change_) || !pass(pair[1], pair[0], [](std::string&) {});
      });
    }
  }

  // False once the source has ended.
  static bool pass(const detail::FileDescriptor& source, const detail::FileDescriptor& target, const Change& change) {
    std::string bytes(4096, '\0');
    const auto got = recv(source.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return true;
    if (got <= 0) return false;
    bytes.resize(static_cast<std::size_t>(got));
    change(bytes);
    static_cast<void>(send(target.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));  // it may have ended
    return true;
  }

  std::string server_;
  Change change_;
  detail::FileDescriptor listener_ = detail::listen_at(any_port_of_loopback());
  std::vector<Pair> pairs_;
  std::atomic<bool> stopped_ = false;
  std::thread thread_;
};

}  // namespace libtrain::test
