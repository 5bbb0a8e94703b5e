#pragma once

#include <string>

#include <libtrain/base/environment.hpp>

namespace libtrain::data::detail {

/// What the environment says of Azure Storage; empty where it says nothing.
struct AzureSettings {
  std::string account = {};
  std::string key = {};            ///< secret
  std::string sas_token = {};      ///< secret; without '?'
  std::string blob_endpoint = {};  ///< a URL with the account in its host or as its path, without a query
  std::string key_source = {};     ///< for messages: which variable the key came from
  std::string sas_source = {};
};

/// AZURE_STORAGE_CONNECTION_STRING alone where it is set: Name=Value pairs with ';' between them, of which AccountName,
/// AccountKey, SharedAccessSignature, BlobEndpoint, DefaultEndpointsProtocol, EndpointSuffix and
/// UseDevelopmentStorage=true (Azurite on port 10000) are read. Otherwise AZURE_STORAGE_ACCOUNT, AZURE_STORAGE_KEY,
/// AZURE_STORAGE_SAS_TOKEN and AZURE_STORAGE_BLOB_ENDPOINT.
/// Throws EnvironmentError that names the variable, and nothing of its value, where it cannot be understood.
AzureSettings azure_settings(const Environment& environment);

}  // namespace libtrain::data::detail
