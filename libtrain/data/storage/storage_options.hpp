#pragma once

#include <chrono>
#include <stop_token>

#include <libtrain/base/environment.hpp>
#include <libtrain/data/storage/retry.hpp>

namespace libtrain::data {

/// How requests to an object store are signed. A shared access signature in the location always takes precedence.
enum class StorageAccess {
  automatic,  ///< with a key or shared access signature of the environment; as `identity` if there is none
  identity,   ///< as the current user: managed identity, workload identity, a cloud's command-line tool
  anonymous,  ///< not signed: public data
};

/// Options for object stores; local folders ignore them.
struct StorageOptions {
  StorageAccess access = StorageAccess::automatic;

  /// For requests that fail because of the network or a busy or restarted store. Clients of the stores retry a few
  /// times on their own within one attempt (Azure's 4 times within about 6 s).
  RetryOptions retry;

  /// If an open file was last compared with the store longer ago than this, a read compares it again afterwards, which
  /// costs one small request. Zero: every read does.
  std::chrono::milliseconds change_check{1000};

  /// Ends waits between attempts with an error.
  std::stop_token stop;

  /// Source of keys, endpoints and regions. Clients of the stores read identities and proxies from the environment of
  /// the process.
  ///
  /// Azure: AZURE_STORAGE_CONNECTION_STRING; if that is not set, AZURE_STORAGE_ACCOUNT, AZURE_STORAGE_KEY,
  /// AZURE_STORAGE_SAS_TOKEN and AZURE_STORAGE_BLOB_ENDPOINT. They apply to the account that they name, or to every
  /// account if they name none. AZURE_CLIENT_ID without AZURE_TENANT_ID, or the DEFAULT_IDENTITY_CLIENT_ID of an
  /// AzureML job, selects a managed identity.
  /// S3: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION or AWS_DEFAULT_REGION,
  /// AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL.
  /// GCS: none; Google's client finds its credentials (GOOGLE_APPLICATION_CREDENTIALS and the like) itself.
  Environment environment = Environment::of_process();
};

}  // namespace libtrain::data
