#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace libtrain::detail {

inline constexpr std::size_t kMaxHostName = 253;
inline constexpr std::size_t kMaxHosts = 65'536;

struct HostPort {
  std::string host;  ///< a name, an IPv4 address, or an IPv6 address without brackets
  std::optional<int> port;
};

/// Letters, digits, '-', '.' and '_', at most kMaxHostName of them: names and IPv4 addresses.
bool is_host_name(std::string_view text);

/// localhost, 127.x.x.x or ::1.
bool is_loopback(std::string_view host);

/// "host", "host:6000", "10.0.0.4:6000", "fe80::1", "[fe80::1]" or "[fe80::1]:6000"; std::nullopt
/// for anything else.
std::optional<HostPort> parse_host_port(std::string_view text);

/// The hosts of a list separated by ',' or ';', without ports. Throws EnvironmentError that names the variable `name`
/// for an empty list, an invalid host and more than 65 536 hosts.
std::vector<std::string> parse_host_list(std::string_view list, std::string_view name);

/// "10.0.0.4:29500" or "[fe80::1]:29500".
std::string join_host_port(const std::string& host, int port);

}  // namespace libtrain::detail
