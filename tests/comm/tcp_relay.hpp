#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <libtrain/base/text.hpp>

#include <tests/comm/tcp_knocks.hpp>

namespace libtrain::testing {

/// Passes bytes between clients and a server on this host until it is told to stop. From then on it says nothing and
/// ends nothing, like a process that is stopped.
class Relay {
 public:
  explicit Relay(int port) : server_(text("127.0.0.1:", port)), thread_([this] { serve(); }) {}
  ~Relay() { stop(); }
  Relay(const Relay&) = delete;  // the thread uses it
  Relay& operator=(const Relay&) = delete;

  std::string url() const { return "tcp://" + detail::local_address(listener_).name(); }

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
      std::erase_if(pairs_, [](const Pair& pair) { return !pass(pair[0], pair[1]) || !pass(pair[1], pair[0]); });
    }
  }

  // False once the source has ended.
  static bool pass(const detail::FileDescriptor& source, const detail::FileDescriptor& target) {
    std::string bytes(4096, '\0');
    const auto got = recv(source.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return true;
    if (got <= 0) return false;
    say(target, bytes.substr(0, static_cast<std::size_t>(got)));
    return true;
  }

  std::string server_;
  detail::FileDescriptor listener_ = detail::listen_at(any_port_of_loopback());
  std::vector<Pair> pairs_;
  std::atomic<bool> stopped_ = false;
  std::thread thread_;
};

}  // namespace libtrain::testing
