#pragma once

#include <chrono>
#include <stop_token>

#include <libtrain/base/environment.hpp>
#include <libtrain/data/storage/retry.hpp>

namespace libtrain::data {

/// How requests to an object store are signed. A shared access signature of the location itself always counts.
enum class StorageAccess {
  automatic,  ///< with a key or shared access signature of the environment, or as `identity` where there is none
  identity,   ///< who runs the program: managed identity, workload identity, a cloud's command-line tool
  anonymous,  ///< not at all: public data
};

/// Local folders need none of this.
struct StorageOptions {
  StorageAccess access = StorageAccess::automatic;

  /// For requests that fail because of the network or a busy or restarted store. Clients of the stores try a few times
  /// on their own before that counts as one attempt (Azure's 4 times within about 6 s).
  RetryOptions retry;

  /// A read of a file that was last compared with the store longer ago than this compares it again afterwards, which
  /// costs one small request. Zero: every read does.
  std::chrono::milliseconds change_check{1000};

  /// Ends waits between attempts with an error.
  std::stop_token stop;

  /// Where keys, endpoints and regions are looked up. Clients of the stores read the process's own environment for
  /// identities and proxies.
  ///
  /// Azure: AZURE_STORAGE_CONNECTION_STRING; where that is not set, AZURE_STORAGE_ACCOUNT, AZURE_STORAGE_KEY,
  /// AZURE_STORAGE_SAS_TOKEN and AZURE_STORAGE_BLOB_ENDPOINT. They count for the account that they name, and for every
  /// account where they name none. AZURE_CLIENT_ID without AZURE_TENANT_ID, or the DEFAULT_IDENTITY_CLIENT_ID of an
  /// AzureML job, chooses a managed identity.
  /// S3: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION or AWS_DEFAULT_REGION,
  /// AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL.
  /// GCS: none; Google's client finds its credentials (GOOGLE_APPLICATION_CREDENTIALS and the like) itself.
  Environment environment = Environment::of_process();
};

}  // namespace libtrain::data
