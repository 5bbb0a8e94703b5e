#include <libtrain/data/storage/azure_settings.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <string_view>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/sas_token.hpp>

namespace libtrain::data::detail {

namespace {

constexpr auto kConnectionString = "AZURE_STORAGE_CONNECTION_STRING";

// The account of every emulator, whose key is public:
// https://learn.microsoft.com/azure/storage/common/storage-use-azurite
constexpr auto kEmulatorAccount = "devstoreaccount1";
constexpr auto kEmulatorKey =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
constexpr auto kEmulatorEndpoint = "http://127.0.0.1:10000/devstoreaccount1";

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
      throw EnvironmentError(text(kConnectionString, " is not made of Name=Value pairs with ';' between them."));
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

// A damaged key would only be noticed deep inside of the first request.
bool is_base64(std::string_view key) {
  const auto padding = key.ends_with("==") ? 2U : key.ends_with('=') ? 1U : 0U;
  constexpr auto digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  return key.size() % 4 == 0 && key.substr(0, key.size() - padding).find_first_not_of(digits) == std::string_view::npos;
}

}  // namespace

AzureSettings azure_settings(const Environment& environment) {
  const auto connection_string = environment.get(kConnectionString);
  auto settings = connection_string ? of_connection_string(*connection_string) : of_variables(environment);
  if (!is_base64(settings.key)) {
    throw EnvironmentError(text("The key in ", settings.key_source, " is not an account key, which is base64 text."));
  }
  if (!settings.sas_token.empty() && sas_parameter(settings.sas_token, "sig").empty()) {
    throw EnvironmentError(text("What ", settings.sas_source,
                                " holds is not a shared access signature, since it has no parameter named sig."));
  }
  return settings;
}

}  // namespace libtrain::data::detail
