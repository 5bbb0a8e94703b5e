#include <libtrain/data/storage/detail/azure.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <map>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data::detail {

namespace {

constexpr std::array<std::string_view, 5> kClouds{
    "core.windows.net", "core.chinacloudapi.cn", "core.usgovcloudapi.net", "core.cloudapi.de", "storage.azure.net",
};
constexpr std::array<std::string_view, 2> kServices{".blob.", ".dfs."};

constexpr auto kConnectionString = "AZURE_STORAGE_CONNECTION_STRING";

// The account of every emulator; its key is public:
// https://learn.microsoft.com/azure/storage/common/storage-use-azurite
constexpr auto kEmulatorAccount = "devstoreaccount1";
constexpr auto kEmulatorKey =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
constexpr auto kEmulatorEndpoint = "http://127.0.0.1:10000/devstoreaccount1";

// The settings of Azure Storage in the environment; empty if not set.
struct AzureSettings {
  std::string account = {};
  std::string key = {};            // secret
  std::string sas_token = {};      // secret; without '?'
  std::string blob_endpoint = {};  // a URL with the account in its host or as its path, without a query
  std::string key_source = {};     // for messages: the variable that contains the key
  std::string sas_source = {};
};

// Some tools write the token with a '?'.
std::string without_question_mark(std::string_view token) {
  if (token.starts_with('?')) token.remove_prefix(1);
  return std::string{token};
}

using Pairs = std::map<std::string, std::string, std::less<>>;

Pairs pairs_of(std::string_view connection_string) {
  Pairs pairs;
  while (!connection_string.empty()) {
    const auto end = std::min(connection_string.find(';'), connection_string.size());
    const auto pair = connection_string.substr(0, end);
    connection_string.remove_prefix(std::min(end + 1, connection_string.size()));
    if (pair.empty()) continue;
    const auto equals = pair.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      throw EnvironmentError(text(kConnectionString, " does not consist of Name=Value pairs separated by ';'."));
    }
    pairs.insert_or_assign(std::string{pair.substr(0, equals)}, std::string{pair.substr(equals + 1)});
  }
  return pairs;
}

AzureSettings of_connection_string(std::string_view connection_string) {
  const auto pairs = pairs_of(connection_string);
  const auto value = [&](std::string_view name, const std::string& otherwise = {}) {
    const auto found = pairs.find(name);
    return found == pairs.end() ? otherwise : found->second;
  };
  AzureSettings settings{.key_source = kConnectionString, .sas_source = kConnectionString};
  if (value("UseDevelopmentStorage") == "true") {
    settings.account = kEmulatorAccount;
    settings.key = kEmulatorKey;
    settings.blob_endpoint = kEmulatorEndpoint;
    return settings;
  }
  settings.account = value("AccountName");
  settings.key = value("AccountKey");
  settings.sas_token = without_question_mark(value("SharedAccessSignature"));
  settings.blob_endpoint = value("BlobEndpoint");
  if (settings.blob_endpoint.empty() && !settings.account.empty()) {
    settings.blob_endpoint = text(value("DefaultEndpointsProtocol", "https"), "://", settings.account, ".blob.",
                                  value("EndpointSuffix", "core.windows.net"));
  }
  if (settings.account.empty() && settings.blob_endpoint.empty()) {
    throw EnvironmentError(text(kConnectionString, " has neither AccountName nor BlobEndpoint."));
  }
  return settings;
}

AzureSettings of_variables(const Environment& environment) {
  return {
      .account = environment.get("AZURE_STORAGE_ACCOUNT").value_or(""),
      .key = environment.get("AZURE_STORAGE_KEY").value_or(""),
      .sas_token = without_question_mark(environment.get("AZURE_STORAGE_SAS_TOKEN").value_or("")),
      .blob_endpoint = environment.get("AZURE_STORAGE_BLOB_ENDPOINT").value_or(""),
      .key_source = "AZURE_STORAGE_KEY",
      .sas_source = "AZURE_STORAGE_SAS_TOKEN",
  };
}

// The client would notice a damaged key only in the first request.
bool is_base64(std::string_view key) {
  const auto padding = key.ends_with("==") ? 2U : key.ends_with('=') ? 1U : 0U;
  constexpr auto digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  return key.size() % 4 == 0 && key.substr(0, key.size() - padding).find_first_not_of(digits) == std::string_view::npos;
}

// Throws EnvironmentError that contains the name, but not the value, of an invalid variable.
AzureSettings azure_settings(const Environment& environment) {
  const auto connection_string = environment.get(kConnectionString);
  auto settings = connection_string ? of_connection_string(*connection_string) : of_variables(environment);
  if (!is_base64(settings.key)) {
    throw EnvironmentError(text("The key in ", settings.key_source, " is not an account key, which is base64 text."));
  }
  if (!settings.sas_token.empty() && query_parameter(settings.sas_token, "sig").empty()) {
    throw EnvironmentError(text("The value of ", settings.sas_source,
                                " is not a shared access signature: it has no parameter named sig."));
  }
  return settings;
}

[[noreturn]] void fail_for_endpoint(const std::string& name) {
  throw EnvironmentError(text("The endpoint '", name,
                              "' of Azure Blob Storage (AZURE_STORAGE_BLOB_ENDPOINT, or "
                              "BlobEndpoint in AZURE_STORAGE_CONNECTION_STRING) is neither https://ACCOUNT.DOMAIN nor "
                              "http://HOST:PORT/ACCOUNT for this storage account."));
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

// The authority of the service for hierarchical namespaces; that of an emulator is the same.
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
  if (const auto expiry = percent_decode(query_parameter(token, "se")); expiry && !expiry->empty()) {
    connection.signed_with += text(", which expires at ", *expiry);
  }
}

// The variable that names a managed identity; with a tenant, AZURE_CLIENT_ID names an application.
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
      "the identity that Azure's client found (environment, workload identity, az login, managed identity), because "
      "neither the location nor the AZURE_STORAGE_ variables have a key or shared access signature for this account";
}

void set_credential(AzureConnection& connection, const Location& location, StorageAccess access,
                    const AzureSettings& settings, const Environment& environment) {
  if (!location.sas_token.empty()) {
    set_sas_token(connection, location.sas_token, "the location");
  } else if (access == StorageAccess::anonymous) {
    connection.credential = AzureCredential::anonymous;
    connection.signed_with = kAnonymous;
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

AzureConnection azure_connection(const Location& location, StorageAccess access, const Environment& environment) {
  auto settings = azure_settings(environment);
  if (settings.account.empty() && !settings.blob_endpoint.empty()) {
    settings.account = parse_endpoint(settings.blob_endpoint, "").account;
  }
  AzureConnection connection;
  connection.account = location.account.empty() ? settings.account : location.account;
  if (connection.account.empty()) {
    throw EnvironmentError(text("'", location.name,
                                "' does not name a storage account. Set AZURE_STORAGE_ACCOUNT, or write "
                                "abfss://container@account.dfs.core.windows.net/path."));
  }
  // Ignore keys and endpoints of another account.
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
