#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace libtrain::data::detail {

/// A host of Azure Storage, taken apart.
struct AzureHost {
  std::string account;
  std::string endpoint;  ///< what follows the account in the host of its blob service, such as ".blob.core.windows.net"
};

/// Understands account.blob.CLOUD and account.dfs.CLOUD for Azure's clouds, with a zone (".z01") or ".privatelink"
/// before the service. Nothing for another host, or where there is a port.
std::optional<AzureHost> parse_azure_host(std::string_view host);

}  // namespace libtrain::data::detail
