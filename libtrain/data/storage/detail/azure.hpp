#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <libtrain/base/environment.hpp>
#include <libtrain/data/storage/detail/location.hpp>
#include <libtrain/data/storage/storage_options.hpp>

namespace libtrain::data::detail {

/// A host of Azure Storage, taken apart.
struct AzureHost {
  std::string account;
  std::string endpoint;  ///< what follows the account in the host of its blob service, such as ".blob.core.windows.net"
};

/// Understands account.blob.CLOUD and account.dfs.CLOUD for Azure's clouds, with a zone (".z01") or ".privatelink"
/// before the service. Nothing for another host, or where there is a port.
std::optional<AzureHost> parse_azure_host(std::string_view host);

enum class AzureCredential { anonymous, account_key, sas_token, managed_identity, default_chain };

/// How to reach a storage account, in the terms of arrow::fs::AzureOptions.
struct AzureConnection {
  std::string account;
  std::string scheme = "https";

  /// host[:port], which the account follows as a path; or what follows the account in the host, beginning with '.'.
  std::string blob_authority = ".blob.core.windows.net";
  std::string dfs_authority = ".dfs.core.windows.net";

  AzureCredential credential = AzureCredential::default_chain;

  /// The key, the shared access signature without its '?', or the client id of a managed identity.
  std::string secret;

  /// For messages: "the account key in AZURE_STORAGE_KEY".
  std::string signed_with;
};

/// What `location`, the caller and the environment say together; see StorageOptions. AZURE_STORAGE_CONNECTION_STRING
/// counts alone where it is set: Name=Value pairs with ';' between them, of which AccountName, AccountKey,
/// SharedAccessSignature, BlobEndpoint, DefaultEndpointsProtocol, EndpointSuffix and UseDevelopmentStorage=true
/// (Azurite on port 10000) are read. Throws EnvironmentError where no account is named, where an endpoint is not one of
/// the account, and, with the variable's name and nothing of its value, where a variable cannot be understood.
AzureConnection azure_connection(const Location& location, StorageAccess access, const Environment& environment);

}  // namespace libtrain::data::detail
