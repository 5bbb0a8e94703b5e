#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <libtrain/base/environment.hpp>
#include <libtrain/data/storage/detail/location.hpp>
#include <libtrain/data/storage/storage_options.hpp>

namespace libtrain::data::detail {

/// The parts of a host of Azure Storage.
struct AzureHost {
  std::string account;
  std::string endpoint;  ///< the part of the blob service's host after the account, such as ".blob.core.windows.net"
};

/// Parses account.blob.CLOUD and account.dfs.CLOUD for Azure's clouds, with a zone (".z01") or ".privatelink" before
/// the service. std::nullopt for another host, or if there is a port.
std::optional<AzureHost> parse_azure_host(std::string_view host);

enum class AzureCredential { anonymous, account_key, sas_token, managed_identity, default_chain };

/// How to reach a storage account, in the terms of arrow::fs::AzureOptions.
struct AzureConnection {
  std::string account;
  std::string scheme = "https";

  /// host[:port], followed by the account as a path; or the part of the host after the account, which begins with '.'.
  std::string blob_authority = ".blob.core.windows.net";
  std::string dfs_authority = ".dfs.core.windows.net";

  AzureCredential credential = AzureCredential::default_chain;

  /// The key, the shared access signature without its '?', or the client id of a managed identity.
  std::string secret;

  /// For messages: "the account key in AZURE_STORAGE_KEY".
  std::string signed_with;
};

/// `signed_with` of anonymous access to any store.
inline constexpr const char* kAnonymous = "no credentials, because anonymous access was requested";

/// Combines `location`, `access` and the environment; see StorageOptions. If AZURE_STORAGE_CONNECTION_STRING is set,
/// the other variables are ignored: it contains Name=Value pairs separated by ';', of which AccountName, AccountKey,
/// SharedAccessSignature, BlobEndpoint, DefaultEndpointsProtocol, EndpointSuffix and UseDevelopmentStorage=true
/// (Azurite on port 10000) are read. Throws EnvironmentError if no account is named or an endpoint does not belong to
/// the account, and, with the name but not the value of the variable, if a variable is invalid.
AzureConnection azure_connection(const Location& location, StorageAccess access, const Environment& environment);

}  // namespace libtrain::data::detail
