#pragma once

#include <string>

#include <libtrain/base/environment.hpp>
#include <libtrain/data/storage/location.hpp>
#include <libtrain/data/storage/storage_options.hpp>

namespace libtrain::data::detail {

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

/// What `location`, the caller and the environment say together; see StorageOptions. Throws EnvironmentError where no
/// account is named, or where an endpoint is not one of the account.
AzureConnection azure_connection(const Location& location, StorageAccess access, const Environment& environment);

}  // namespace libtrain::data::detail
