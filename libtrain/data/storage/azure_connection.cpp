#include <libtrain/data/storage/azure_connection.hpp>

#include <string>
#include <string_view>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/azure_settings.hpp>
#include <libtrain/data/storage/percent_encoding.hpp>
#include <libtrain/data/storage/sas_token.hpp>
#include <libtrain/data/storage/uri.hpp>

namespace libtrain::data::detail {

namespace {

[[noreturn]] void fail_for_endpoint(const std::string& name) {
  throw EnvironmentError(text("The endpoint '", name,
                              "' of Azure Blob Storage (AZURE_STORAGE_BLOB_ENDPOINT, or "
                              "BlobEndpoint in AZURE_STORAGE_CONNECTION_STRING) is neither https://ACCOUNT.DOMAIN nor "
                              "http://HOST:PORT/ACCOUNT for the storage account in question."));
}

// The scheme, the authority and the account of an endpoint; `account` may be empty.
struct Endpoint {
  std::string scheme;
  std::string authority;
  std::string account;
};

Endpoint parse_endpoint(const std::string& url, const std::string& account) {
  const auto uri = split_uri(url);
  if (!uri) fail_for_endpoint("");
  if (!uri->authority || uri->authority->empty() || uri->query || uri->has_fragment ||
      (uri->scheme != "http" && uri->scheme != "https") || uri->authority->find('@') != std::string::npos) {
    fail_for_endpoint(uri->name);
  }
  Endpoint endpoint{.scheme = uri->scheme, .authority = lower_case(*uri->authority), .account = account};
  std::string_view path = uri->path;
  if (path.starts_with('/')) path.remove_prefix(1);
  if (path.ends_with('/')) path.remove_suffix(1);
  if (!path.empty()) {
    if (account.empty()) endpoint.account = path;
    if (endpoint.account != path || path.find('/') != std::string_view::npos) fail_for_endpoint(uri->name);
    return endpoint;
  }
  const auto dot = endpoint.authority.find('.');
  const auto first = endpoint.authority.substr(0, dot);
  const bool is_address = endpoint.authority.find_first_not_of("0123456789.:") == std::string::npos;
  if (dot == std::string::npos || is_address || (!account.empty() && first != account)) fail_for_endpoint(uri->name);
  endpoint.account = first;
  endpoint.authority.erase(0, dot);
  return endpoint;
}

// Of the service for hierarchical namespaces, which an emulator serves (or refuses) at the same place.
std::string dfs_authority_of(const std::string& blob_authority) {
  constexpr std::string_view blob = ".blob.";
  const auto found = blob_authority.find(blob);
  if (!blob_authority.starts_with('.') || found == std::string::npos) return blob_authority;
  return text(blob_authority.substr(0, found), ".dfs.", blob_authority.substr(found + blob.size()));
}

void set_sas_token(AzureConnection& connection, const std::string& token, const std::string& source) {
  connection.credential = AzureCredential::sas_token;
  connection.secret = token;
  connection.signed_with = text("the shared access signature in ", source);
  if (const auto expiry = percent_decode(sas_parameter(token, "se")); expiry && !expiry->empty()) {
    connection.signed_with += text(", which expires at ", *expiry);
  }
}

// The variable that names a managed identity: with a tenant it would be an application instead.
std::string_view managed_identity_variable(const Environment& environment) {
  if (environment.has("AZURE_CLIENT_ID")) return environment.has("AZURE_TENANT_ID") ? "" : "AZURE_CLIENT_ID";
  return environment.has("DEFAULT_IDENTITY_CLIENT_ID") ? "DEFAULT_IDENTITY_CLIENT_ID" : "";
}

void set_identity(AzureConnection& connection, const Environment& environment) {
  if (const auto variable = managed_identity_variable(environment); !variable.empty()) {
    connection.credential = AzureCredential::managed_identity;
    connection.secret = environment.get(variable).value_or("");
    connection.signed_with = text("the managed identity that ", variable, " names");
    return;
  }
  connection.credential = AzureCredential::default_chain;
  connection.signed_with =
      "whatever identity Azure's client found (environment, workload identity, az login, managed identity), since no "
      "key or shared access signature for this account is in the location or in AZURE_STORAGE_ variables";
}

void set_credential(AzureConnection& connection, const Location& location, StorageAccess access,
                    const AzureSettings& settings, const Environment& environment) {
  if (!location.sas_token.empty()) {
    set_sas_token(connection, location.sas_token, "the location");
  } else if (access == StorageAccess::anonymous) {
    connection.credential = AzureCredential::anonymous;
    connection.signed_with = "nothing, as anonymous access was asked for";
  } else if (access == StorageAccess::automatic && !settings.key.empty()) {
    connection.credential = AzureCredential::account_key;
    connection.secret = settings.key;
    connection.signed_with = text("the account key in ", settings.key_source);
  } else if (access == StorageAccess::automatic && !settings.sas_token.empty()) {
    set_sas_token(connection, settings.sas_token, settings.sas_source);
  } else {
    set_identity(connection, environment);
  }
}

}  // namespace

AzureConnection azure_connection(const Location& location, StorageAccess access, const Environment& environment) {
  auto settings = azure_settings(environment);
  if (settings.account.empty() && !settings.blob_endpoint.empty()) {
    settings.account = parse_endpoint(settings.blob_endpoint, "").account;
  }
  AzureConnection connection;
  connection.account = location.account.empty() ? settings.account : location.account;
  if (connection.account.empty()) {
    throw EnvironmentError(text("'", location.name,
                                "' names no storage account: set AZURE_STORAGE_ACCOUNT, or write "
                                "abfss://container@account.dfs.core.windows.net/path."));
  }
  // Keys and endpoints of another account are of no use here.
  if (!settings.account.empty() && settings.account != connection.account) settings = {};
  if (!settings.blob_endpoint.empty()) {
    const auto endpoint = parse_endpoint(settings.blob_endpoint, connection.account);
    connection.scheme = endpoint.scheme;
    connection.blob_authority = endpoint.authority;
  } else if (!location.endpoint.empty()) {
    connection.blob_authority = location.endpoint;
  }
  connection.dfs_authority = dfs_authority_of(connection.blob_authority);
  set_credential(connection, location, access, settings, environment);
  return connection;
}

}  // namespace libtrain::data::detail
