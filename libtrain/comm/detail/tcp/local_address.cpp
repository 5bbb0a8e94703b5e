#include <libtrain/comm/detail/tcp/local_address.hpp>

#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/tcp/socket.hpp>
#include <libtrain/launch/detail/host.hpp>

namespace libtrain::detail {

namespace {

constexpr int kAnyPort = 9;  // no packet is sent: only the route is looked up

SocketAddress loopback() {
  return *SocketAddress::parse("127.0.0.1:1");
}

// Not open if this machine does not support the family, such as IPv6.
FileDescriptor make_probe(int family) {
  FileDescriptor probe{::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  // Otherwise the limit of open files would look like a missing route.
  if (!probe.is_open() && (errno == EMFILE || errno == ENFILE)) throw_system_error("socket");
  return probe;
}

// The source address of packets to `remote`; std::nullopt if there is no route.
std::optional<SocketAddress> address_towards(const SocketAddress& remote) {
  const auto probe = make_probe(remote.family());
  if (!probe.is_open() || connect(probe.get(), remote.get(), remote.length()) != 0) return std::nullopt;
  return local_address(probe);
}

// IPv4, then IPv6, then link-local IPv6, which other hosts cannot use without the name of the interface.
int preference(const SocketAddress& address) {
  if (address.family() == AF_INET) return 0;
  return address.is_link_local() ? 2 : 1;
}

SocketAddress address_of_interface(const std::string& name) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) throw_system_error("getifaddrs");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner{list, &freeifaddrs};
  std::optional<SocketAddress> best;
  std::set<std::string> names;
  for (const auto* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    names.insert(entry->ifa_name);
    if (name != entry->ifa_name) continue;
    const auto length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    const SocketAddress address{entry->ifa_addr, static_cast<socklen_t>(length)};
    if (!best || preference(address) < preference(*best)) best = address;
  }
  if (!best) {
    throw EnvironmentError(text("Network interface '", name,
                                "' does not exist or has no address. Set LIBTRAIN_SOCKET_INTERFACE (or "
                                "GLOO_SOCKET_IFNAME) to one of ",
                                join(names, ", "), "."));
  }
  return *best;
}

// With a wildcard address, rank 0 would listen on every interface, and each peer would connect to its own host.
std::vector<SocketAddress> resolve_master(const std::string& host, int port, const Deadline& deadline) {
  auto known = SocketAddress::resolve(host, port, deadline);
  if (std::any_of(known.begin(), known.end(), [](const auto& address) { return address.is_unspecified(); })) {
    throw EnvironmentError(text("The master address '", host,
                                "' is a wildcard address. Set MASTER_ADDR, or the host of --dist-url, to the name or "
                                "an address of rank 0's host."));
  }
  return known;
}

// Whether other hosts resolve this name to a different address: Debian's /etc/hosts maps a host's own name to
// 127.0.1.1.
bool is_hidden(const std::string& host, const SocketAddress& address) {
  return address.is_loopback() && !is_loopback(host);
}

// The addresses of `host` that other hosts resolve too; empty if there is none.
std::vector<SocketAddress> without_hidden(const std::string& host, std::vector<SocketAddress> known) {
  std::erase_if(known, [&](const auto& address) { return is_hidden(host, address); });
  return known;
}

SocketAddress address_towards_master(const std::string& master, const Deadline& deadline) {
  const auto known = resolve_master(master, kAnyPort, deadline);
  for (const auto& remotes : {without_hidden(master, known), known}) {
    for (const auto& remote : remotes) {
      if (const auto address = address_towards(remote)) return *address;
    }
  }
  throw EnvironmentError(text("This host has no route to the master address '", master,
                              "'. Check the network, or set LIBTRAIN_SOCKET_INTERFACE to the interface to use."));
}

// Addresses reserved for documentation (RFC 5737, RFC 3849): the route to them is the default route.
std::optional<SocketAddress> address_of_default_route() {
  for (const auto* remote : {"192.0.2.1:9", "[2001:db8::1]:9"}) {
    if (const auto address = address_towards(*SocketAddress::parse(remote))) return address;
  }
  return std::nullopt;
}

}  // namespace

bool is_of_this_host(const SocketAddress& address) {
  if (address.is_loopback()) return true;
  // Packets to an address of this host have that address as their source. bind(2) may succeed with any address.
  const auto source = address_towards(address);
  return source && source->with_port(0).name() == address.with_port(0).name();
}

std::string network_place() {
  return machine_id() + own_namespace("net");
}

SocketAddress choose_local_address(const TcpOptions& options, bool all_ranks_are_here, const Deadline& deadline) {
  if (!options.interface.empty()) return address_of_interface(options.interface).with_port(0);
  if (!options.master_address.empty()) {
    const auto address = address_towards_master(options.master_address, deadline);
    // A loopback address if the name of rank 0's host has only a hidden one here.
    if (all_ranks_are_here || !address.is_loopback()) return address.with_port(0);
  } else if (all_ranks_are_here) {
    return loopback().with_port(0);
  }
  if (const auto address = address_of_default_route()) return address->with_port(0);
  throw EnvironmentError(
      "The ranks are on several hosts, and this one has no default route. Set LIBTRAIN_SOCKET_INTERFACE to the network "
      "interface to use, such as eth0, or MASTER_ADDR to the host of rank 0.");
}

SocketAddress address_to_serve(const std::string& host, int port, const Deadline& deadline) {
  const auto known = resolve_master(host, port, deadline);
  auto own = without_hidden(host, known);
  std::erase_if(own, [](const auto& address) { return !is_of_this_host(address); });
  // A peer may have no IPv6.
  const auto best = std::min_element(
      own.begin(), own.end(), [](const auto& one, const auto& other) { return preference(one) < preference(other); });
  if (best != own.end()) return *best;
  const auto outward = address_of_default_route();
  return outward ? outward->with_port(port) : known.front();
}

std::vector<SocketAddress> addresses_to_reach(const std::string& host, int port, const Deadline& deadline) {
  const auto known = resolve_master(host, port, deadline);
  auto visible = without_hidden(host, known);
  if (!visible.empty()) return visible;
  const auto outward = address_of_default_route();
  return outward ? std::vector{outward->with_port(port)} : known;
}

SocketAddress address_of_rank_0(const TcpOptions& options, const Deadline& deadline) {
  const bool is_given = !options.interface.empty() || !options.master_address.empty();
  if (is_given) return choose_local_address(options, is_loopback(options.master_address), deadline);
  const auto outward = address_of_default_route();
  return outward ? outward->with_port(0) : loopback().with_port(0);
}

}  // namespace libtrain::detail
