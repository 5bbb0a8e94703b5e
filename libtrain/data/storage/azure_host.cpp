#include <libtrain/data/storage/azure_host.hpp>

#include <array>

#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/uri.hpp>

namespace libtrain::data::detail {

namespace {

constexpr std::array<std::string_view, 5> kClouds{
    "core.windows.net", "core.chinacloudapi.cn", "core.usgovcloudapi.net", "core.cloudapi.de", "storage.azure.net",
};
constexpr std::array<std::string_view, 2> kServices{".blob.", ".dfs."};

}  // namespace

std::optional<AzureHost> parse_azure_host(std::string_view host) {
  const auto lower = lower_case(host);
  const auto dot = lower.find('.');
  if (dot == std::string::npos || dot == 0) return std::nullopt;
  const std::string_view rest = std::string_view{lower}.substr(dot);
  for (const auto cloud : kClouds) {
    for (const auto service : kServices) {
      const auto end = text(service, cloud);
      if (!rest.ends_with(end)) continue;
      const auto zone = rest.substr(0, rest.size() - end.size());
      return AzureHost{.account = lower.substr(0, dot), .endpoint = text(zone, ".blob.", cloud)};
    }
  }
  return std::nullopt;
}

}  // namespace libtrain::data::detail
