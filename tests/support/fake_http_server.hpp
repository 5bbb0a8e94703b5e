#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace libtrain::test {

/// An HTTP server on this machine, on a port that the kernel chose, that answers as a test says. One connection a
/// request.
class FakeHttpServer {
 public:
  struct Request {
    std::string method;
    std::string target;                          ///< path and query, as sent
    std::map<std::string, std::string> headers;  ///< by name, in small letters
    std::string body;
  };

  enum class Then { answer, hang, cut };

  struct Answer {
    int status = 200;
    std::string body = "{}";
    std::string headers = {};  ///< lines that end with "\r\n"
    Then then = Then::answer;  ///< hang: no answer while the server lives; cut: half of it
  };

  using Handler = std::function<Answer(const Request&)>;

  /// `handler` is called by one thread at a time.
  explicit FakeHttpServer(Handler handler)
      : handler_(std::move(handler)), listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener_, any, size) != 0 || ::listen(listener_, 16) != 0 ||
        ::getsockname(listener_, any, &size) != 0) {
      throw std::runtime_error("cannot listen on the loopback interface");
    }
    port_ = ntohs(address.sin_port);
    thread_ = std::thread{[this] { accept_all(); }};
  }

  FakeHttpServer(const FakeHttpServer&) = delete;  // owns a socket and threads
  FakeHttpServer& operator=(const FakeHttpServer&) = delete;

  ~FakeHttpServer() {
    {
      const std::lock_guard lock{mutex_};
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
    for (auto& connection : connections_) connection.join();
    ::close(listener_);
  }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

  std::vector<Request> requests() const {
    const std::lock_guard lock{mutex_};
    return requests_;
  }

  /// Waits until `count` requests have arrived, at most 30 s.
  bool wait_for(std::size_t count) const {
    std::unique_lock lock{mutex_};
    return changed_.wait_for(lock, std::chrono::seconds{30}, [&] { return requests_.size() >= count; });
  }

 private:
  bool ends() const {
    const std::lock_guard lock{mutex_};
    return ends_;
  }

  bool is_readable(int socket) const {
    pollfd waits{socket, POLLIN, 0};
    while (!ends()) {
      if (::poll(&waits, 1, 10) > 0) return true;
    }
    return false;
  }

  void accept_all() {
    while (is_readable(listener_)) {
      const int socket = ::accept(listener_, nullptr, nullptr);
      if (socket < 0) continue;
      connections_.emplace_back([this, socket] {
        serve(socket);
        ::close(socket);
      });
    }
  }

  void serve(int socket) {
    std::string text;
    std::size_t head = std::string::npos;
    Request request;
    std::size_t length = 0;
    while (head == std::string::npos || text.size() < head + 4 + length) {
      char part[65536];
      if (!is_readable(socket)) return;
      const auto got = ::recv(socket, part, sizeof part, 0);
      if (got <= 0) return;
      text.append(part, static_cast<std::size_t>(got));
      if (head == std::string::npos && (head = text.find("\r\n\r\n")) != std::string::npos) {
        request = parsed(text.substr(0, head));
        const auto found = request.headers.find("content-length");
        length = found == request.headers.end() ? 0 : std::stoul(found->second);
      }
    }
    request.body = text.substr(head + 4, length);
    answer(socket, request);
  }

  void answer(int socket, const Request& request) {
    std::unique_lock lock{mutex_};
    const auto answer = handler_(request);
    requests_.push_back(request);
    changed_.notify_all();
    if (answer.then == Then::hang) {
      changed_.wait(lock, [&] { return ends_; });
      return;
    }
    lock.unlock();
    auto bytes = "HTTP/1.1 " + std::to_string(answer.status) +
                 " Fake\r\nConnection: close\r\nContent-Length: " + std::to_string(answer.body.size()) + "\r\n" +
                 answer.headers + "\r\n" + answer.body;
    if (answer.then == Then::cut) bytes.resize(bytes.size() / 2);
    for (std::size_t sent = 0; sent < bytes.size();) {
      const auto count = ::send(socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return;
      sent += static_cast<std::size_t>(count);
    }
  }

  static Request parsed(const std::string& head) {
    Request request;
    const auto first = head.find(' ');
    const auto second = head.find(' ', first + 1);
    request.method = head.substr(0, first);
    request.target = head.substr(first + 1, second - first - 1);
    for (auto line = head.find("\r\n"); line != std::string::npos;) {
      const auto next = head.find("\r\n", line + 2);
      const auto text = head.substr(line + 2, next == std::string::npos ? next : next - line - 2);
      const auto colon = text.find(':');
      auto name = text.substr(0, colon);
      std::ranges::transform(name, name.begin(), [](unsigned char letter) { return std::tolower(letter); });
      request.headers[name] = text.substr(std::min(text.find_first_not_of(' ', colon + 1), text.size()));
      line = next;
    }
    return request;
  }

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<Request> requests_;
  bool ends_ = false;
  Handler handler_;
  int listener_;
  int port_ = 0;
  std::vector<std::thread> connections_;  // of thread_ alone, while it runs
  std::thread thread_;
};

}  // namespace libtrain::test
