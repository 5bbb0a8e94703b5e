#include <libtrain/comm/detail/tcp/socket_address.hpp>

#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>

#include <libtrain/base/detail/reminder.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/launch/detail/host.hpp>

namespace libtrain::detail {

namespace {

constexpr std::chrono::milliseconds kNamePause{200};

// 0, or getaddrinfo's code.
int look_up(const std::string& host, int port, int flags, std::vector<SocketAddress>& found) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (code != 0) return code;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner{list, &freeaddrinfo};
  for (const auto* entry = list; entry != nullptr; entry = entry->ai_next) {
    found.emplace_back(entry->ai_addr, entry->ai_addrlen);
  }
  return 0;
}

}  // namespace

SocketAddress::SocketAddress(const sockaddr* address, socklen_t length) {
  length_ = std::min<socklen_t>(length, sizeof(storage_));
  std::memcpy(&storage_, address, length_);
}

std::optional<SocketAddress> SocketAddress::parse(const std::string& name) {
  const auto parsed = parse_host_port(name);
  if (!parsed || !parsed->port) return std::nullopt;
  std::vector<SocketAddress> found;
  if (look_up(parsed->host, *parsed->port, AI_NUMERICHOST | AI_NUMERICSERV, found) != 0 || found.empty())
    return std::nullopt;
  return found.front();
}

std::vector<SocketAddress> SocketAddress::resolve(const std::string& host, int port, const Deadline& deadline) {
  std::vector<SocketAddress> found;
  Reminder reminder;
  while (true) {
    const int code = look_up(host, port, AI_NUMERICSERV, found);
    if (code == 0 && !found.empty()) return found;
    // In a cluster, the name of a pod may not resolve before the pod has started.
    if (deadline.expired()) {
      throw CommunicationError(text("Host '", host, "' was not found (", gai_strerror(code),
                                    "). Check the master address, or give an IP address."));
    }
    if (reminder.is_due()) {
      log_warning(
          text("Host '", host, "' does not resolve yet (", gai_strerror(code), "). Retrying until the deadline."));
    }
    std::this_thread::sleep_for(std::min<Deadline::Clock::duration>(kNamePause, deadline.remaining()));
  }
}

int SocketAddress::port() const {
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(storage_).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(storage_).sin_port);
}

SocketAddress SocketAddress::with_port(int port) const {
  SocketAddress changed = *this;
  const auto number = htons(static_cast<std::uint16_t>(port));
  if (family() == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(changed.storage_).sin6_port = number;
  } else {
    reinterpret_cast<sockaddr_in&>(changed.storage_).sin_port = number;
  }
  return changed;
}

bool SocketAddress::is_loopback() const {
  if (family() == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr);
  return ntohl(reinterpret_cast<const sockaddr_in&>(storage_).sin_addr.s_addr) >> 24 == 127;
}

bool SocketAddress::is_link_local() const {
  return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr);
}

bool SocketAddress::is_unspecified() const {
  if (family() != AF_INET6) return reinterpret_cast<const sockaddr_in&>(storage_).sin_addr.s_addr == INADDR_ANY;
  const auto& address = reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr;
  constexpr std::array<unsigned char, 4> kAnyIpv4{};
  const bool mapped = IN6_IS_ADDR_V4MAPPED(&address);
  return IN6_IS_ADDR_UNSPECIFIED(&address) || (mapped && std::memcmp(&address.s6_addr[12], kAnyIpv4.data(), 4) == 0);
}

std::string SocketAddress::name() const {
  std::array<char, NI_MAXHOST> host{};
  const int code = getnameinfo(get(), length_, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST);
  if (code != 0) return "an unknown address";
  return join_host_port(host.data(), port());
}

}  // namespace libtrain::detail
