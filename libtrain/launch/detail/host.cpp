#include <libtrain/launch/detail/host.hpp>

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>

#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/launch/detail/launcher_variables.hpp>

namespace libtrain::detail {
namespace {

bool is_ipv6(std::string_view text) {
  const auto zone = text.find('%');
  if (zone != std::string_view::npos && !is_host_name(text.substr(zone + 1))) return false;
  in6_addr address{};
  return inet_pton(AF_INET6, std::string{text.substr(0, zone)}.c_str(), &address) == 1;
}

}  // namespace

bool is_host_name(std::string_view text) {
  const auto allowed = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_'; };
  return !text.empty() && text.size() <= kMaxHostName && text.front() != '-' && text.front() != '.' &&
         std::all_of(text.begin(), text.end(), allowed);
}

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" || (host.starts_with("127.") && parse_integer(host.substr(4, 1), 0, 9));
}

std::optional<HostPort> parse_host_port(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) return std::nullopt;
  if (is_ipv6(text)) return HostPort{std::string{text}, std::nullopt};
  HostPort result;
  std::string_view port;
  if (text.starts_with('[')) {
    const auto close = text.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    result.host = text.substr(1, close - 1);
    if (!is_ipv6(result.host)) return std::nullopt;
    port = text.substr(close + 1);
  } else {
    const auto colon = std::min(text.find(':'), text.size());
    result.host = text.substr(0, colon);
    if (!is_host_name(result.host)) return std::nullopt;
    port = text.substr(colon);
  }
  if (port.empty()) return result;
  const auto number = port.starts_with(':') ? parse_integer(port.substr(1), 1, 65'535) : std::nullopt;
  if (!number) return std::nullopt;
  result.port = static_cast<int>(*number);
  return result;
}

std::vector<std::string> parse_host_list(std::string_view list, std::string_view name) {
  std::vector<std::string> hosts;
  for (std::size_t start = 0; start <= list.size();) {
    const auto end = std::min(list.find_first_of(",;", start), list.size());
    const auto item = list.substr(start, end - start);
    start = end + 1;
    if (item.empty() && end == list.size() && !hosts.empty()) break;
    const auto host = parse_host_port(item);
    if (!host) {
      throw EnvironmentError(text(name, " is ", in_quotes(list), ", whose item ", in_quotes(item),
                                  " is not a host name or address. Correct it, or set MASTER_ADDR."));
    }
    if (hosts.size() == kMaxHosts) {
      throw EnvironmentError(text(name, " names more than ", kMaxHosts, " hosts. Correct it, or unset it."));
    }
    hosts.push_back(host->host);
  }
  return hosts;
}

std::string join_host_port(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? text(host, ":", port) : text("[", host, "]:", port);
}

}  // namespace libtrain::detail
