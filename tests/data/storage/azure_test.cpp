#include <libtrain/data/storage/detail/azure.hpp>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/storage/detail/location.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::data::detail {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Variables = std::map<std::string, std::string, std::less<>>;

const std::string kAccountKey = "C4n4rYKeyAAAAAA=";
const std::string kToken = "sv=2022-11-02&se=2030-01-31T10%3A00%3A00Z&sp=rl&sig=C4n4rYsig";

AzureConnection connect(const std::string& location, const Variables& variables,
                        StorageAccess access = StorageAccess::automatic) {
  return azure_connection(parse_location(location), access, Environment{variables});
}

std::string message_for(const std::string& location, const Variables& variables) {
  return libtrain::test::message_of<EnvironmentError>([&] { connect(location, variables); });
}

struct CredentialCase {
  std::string what;
  std::string location;
  StorageAccess access;
  Variables variables;
  AzureCredential credential;
  std::string secret;
  std::string signed_with;
};

TEST(AzureConnection, ChoosesACredential) {
  const std::string location = "abfss://images@data1.dfs.core.windows.net/train";
  const Variables key{{"AZURE_STORAGE_KEY", kAccountKey}};
  const Variables key_and_token{{"AZURE_STORAGE_KEY", kAccountKey}, {"AZURE_STORAGE_SAS_TOKEN", kToken}};
  const std::string string_with_key = "AccountName=data1;AccountKey=" + kAccountKey;
  const std::vector<CredentialCase> cases{
      {"nothing set", location, StorageAccess::automatic, {}, AzureCredential::default_chain, "", "AZURE_STORAGE_"},
      {"a key", location, StorageAccess::automatic, key, AzureCredential::account_key, kAccountKey,
       "AZURE_STORAGE_KEY"},
      {"a key before a token", location, StorageAccess::automatic, key_and_token, AzureCredential::account_key,
       kAccountKey, "AZURE_STORAGE_KEY"},
      {"a token",
       location,
       StorageAccess::automatic,
       {{"AZURE_STORAGE_SAS_TOKEN", kToken}},
       AzureCredential::sas_token,
       kToken,
       "AZURE_STORAGE_SAS_TOKEN, which expires at 2030-01-31T10:00:00Z"},
      {"a token with its question mark",
       location,
       StorageAccess::automatic,
       {{"AZURE_STORAGE_SAS_TOKEN", "?" + kToken}},
       AzureCredential::sas_token,
       kToken,
       "AZURE_STORAGE_SAS_TOKEN"},
      {"a token in the location before all", location + "?sig=own", StorageAccess::automatic, key_and_token,
       AzureCredential::sas_token, "sig=own", "in the location"},
      {"a connection string before the others",
       location,
       StorageAccess::automatic,
       {{"AZURE_STORAGE_CONNECTION_STRING", string_with_key}, {"AZURE_STORAGE_KEY", "AAAA"}},
       AzureCredential::account_key,
       kAccountKey,
       "AZURE_STORAGE_CONNECTION_STRING"},
      {"a token in a connection string",
       location,
       StorageAccess::automatic,
       {{"AZURE_STORAGE_CONNECTION_STRING",
         "BlobEndpoint=https://data1.blob.core.windows.net/;SharedAccessSignature=" + kToken}},
       AzureCredential::sas_token,
       kToken,
       "AZURE_STORAGE_CONNECTION_STRING"},
      {"the key of this account",
       location,
       StorageAccess::automatic,
       {{"AZURE_STORAGE_ACCOUNT", "data1"}, {"AZURE_STORAGE_KEY", kAccountKey}},
       AzureCredential::account_key,
       kAccountKey,
       ""},
      {"the key of another account",
       location,
       StorageAccess::automatic,
       {{"AZURE_STORAGE_ACCOUNT", "other"}, {"AZURE_STORAGE_KEY", kAccountKey}},
       AzureCredential::default_chain,
       "",
       ""},
      {"the connection string of another account",
       location,
       StorageAccess::automatic,
       {{"AZURE_STORAGE_CONNECTION_STRING", "AccountName=other;AccountKey=" + kAccountKey}},
       AzureCredential::default_chain,
       "",
       ""},
      {"anonymous access", location, StorageAccess::anonymous, key, AzureCredential::anonymous, "", "no credentials"},
      {"an identity instead of a key", location, StorageAccess::identity, key, AzureCredential::default_chain, "", ""},
      {"a managed identity",
       location,
       StorageAccess::automatic,
       {{"AZURE_CLIENT_ID", "id-1"}},
       AzureCredential::managed_identity,
       "id-1",
       "AZURE_CLIENT_ID"},
      {"an application",
       location,
       StorageAccess::automatic,
       {{"AZURE_CLIENT_ID", "id-1"}, {"AZURE_TENANT_ID", "t"}},
       AzureCredential::default_chain,
       "",
       ""},
      {"an AzureML job's identity",
       location,
       StorageAccess::automatic,
       {{"DEFAULT_IDENTITY_CLIENT_ID", "id-2"}},
       AzureCredential::managed_identity,
       "id-2",
       "DEFAULT_IDENTITY_CLIENT_ID"},
  };
  for (const auto& entry : cases) {
    const auto connection = connect(entry.location, entry.variables, entry.access);
    EXPECT_EQ(connection.account, "data1") << entry.what;
    EXPECT_EQ(connection.credential, entry.credential) << entry.what;
    EXPECT_EQ(connection.secret, entry.secret) << entry.what;
    EXPECT_THAT(connection.signed_with, AllOf(HasSubstr(entry.signed_with), Not(HasSubstr("C4n4rY")))) << entry.what;
  }
}

struct EndpointCase {
  std::string location;
  Variables variables;
  std::string account;
  std::string scheme;
  std::string blob_authority;
  std::string dfs_authority;
};

TEST(AzureConnection, FindsTheEndpoint) {
  const std::string windows = ".blob.core.windows.net";
  const std::string dfs = ".dfs.core.windows.net";
  const std::string emulator = "http://127.0.0.1:10000/devstoreaccount1";
  const std::vector<EndpointCase> cases{
      {"az://images", {{"AZURE_STORAGE_ACCOUNT", "data1"}}, "data1", "https", windows, dfs},
      {"az://images",
       {{"AZURE_STORAGE_CONNECTION_STRING", "AccountName=data1;AccountKey=" + kAccountKey}},
       "data1",
       "https",
       windows,
       dfs},
      {"az://images",
       {{"AZURE_STORAGE_CONNECTION_STRING", "DefaultEndpointsProtocol=https;AccountName=data1;AccountKey=" +
                                                kAccountKey + ";EndpointSuffix=core.chinacloudapi.cn"}},
       "data1",
       "https",
       ".blob.core.chinacloudapi.cn",
       ".dfs.core.chinacloudapi.cn"},
      {"abfss://images@data1.dfs.core.usgovcloudapi.net/x",
       {},
       "data1",
       "https",
       ".blob.core.usgovcloudapi.net",
       ".dfs.core.usgovcloudapi.net"},
      {"https://data1.z01.blob.storage.azure.net/images",
       {},
       "data1",
       "https",
       ".z01.blob.storage.azure.net",
       ".z01.dfs.storage.azure.net"},
      {"az://images",
       {{"AZURE_STORAGE_BLOB_ENDPOINT", emulator}},
       "devstoreaccount1",
       "http",
       "127.0.0.1:10000",
       "127.0.0.1:10000"},
      {"az://images",
       {{"AZURE_STORAGE_BLOB_ENDPOINT", emulator + "/"}, {"AZURE_STORAGE_ACCOUNT", "devstoreaccount1"}},
       "devstoreaccount1",
       "http",
       "127.0.0.1:10000",
       "127.0.0.1:10000"},
      {"az://images",
       {{"AZURE_STORAGE_BLOB_ENDPOINT", "https://data1.privatelink.blob.core.windows.net"}},
       "data1",
       "https",
       ".privatelink.blob.core.windows.net",
       ".privatelink.dfs.core.windows.net"},
      {"abfss://images@devstoreaccount1.dfs.core.windows.net/x",
       {{"AZURE_STORAGE_BLOB_ENDPOINT", emulator}},
       "devstoreaccount1",
       "http",
       "127.0.0.1:10000",
       "127.0.0.1:10000"},
      {"abfss://images@data1.dfs.core.windows.net/x",
       {{"AZURE_STORAGE_BLOB_ENDPOINT", emulator}},
       "data1",
       "https",
       windows,
       dfs},
      {"az://images",
       {{"AZURE_STORAGE_CONNECTION_STRING", "UseDevelopmentStorage=true"}},
       "devstoreaccount1",
       "http",
       "127.0.0.1:10000",
       "127.0.0.1:10000"},
      {"az://images",
       {{"AZURE_STORAGE_CONNECTION_STRING", "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=" +
                                                kAccountKey + ";BlobEndpoint=http://[::1]:1234/devstoreaccount1;"}},
       "devstoreaccount1",
       "http",
       "[::1]:1234",
       "[::1]:1234"},
  };
  for (const auto& entry : cases) {
    const auto connection = connect(entry.location, entry.variables);
    EXPECT_EQ(connection.account, entry.account) << entry.blob_authority;
    EXPECT_EQ(connection.scheme, entry.scheme) << entry.blob_authority;
    EXPECT_EQ(connection.blob_authority, entry.blob_authority);
    EXPECT_EQ(connection.dfs_authority, entry.dfs_authority) << entry.blob_authority;
  }
}

struct BadCase {
  std::string location;
  Variables variables;
  std::string complaint;
};

TEST(AzureConnection, NamesWhatIsMissingOrWrongButNothingSecret) {
  const std::vector<BadCase> cases{
      {"az://images", {}, "Set AZURE_STORAGE_ACCOUNT"},
      {"az://images?" + kToken, {}, "Set AZURE_STORAGE_ACCOUNT"},
      {"az://images", {{"AZURE_STORAGE_ACCOUNT", "data1"}, {"AZURE_STORAGE_KEY", "C4n4rY"}}, "base64"},
      {"az://images", {{"AZURE_STORAGE_ACCOUNT", "data1"}, {"AZURE_STORAGE_KEY", "C4n4rY !"}}, "AZURE_STORAGE_KEY"},
      {"az://images", {{"AZURE_STORAGE_ACCOUNT", "data1"}, {"AZURE_STORAGE_SAS_TOKEN", "C4n4rY"}}, "named sig"},
      {"az://images", {{"AZURE_STORAGE_CONNECTION_STRING", "C4n4rY"}}, "Name=Value"},
      {"az://images", {{"AZURE_STORAGE_CONNECTION_STRING", "=C4n4rY"}}, "AZURE_STORAGE_CONNECTION_STRING"},
      {"az://images", {{"AZURE_STORAGE_CONNECTION_STRING", "AccountKey=" + kAccountKey}}, "AccountName"},
      {"az://images", {{"AZURE_STORAGE_BLOB_ENDPOINT", "http://127.0.0.1:10000"}}, "HOST:PORT/ACCOUNT"},
      {"az://images", {{"AZURE_STORAGE_BLOB_ENDPOINT", "127.0.0.1:10000/devstoreaccount1"}}, "HOST:PORT/ACCOUNT"},
      {"az://images",
       {{"AZURE_STORAGE_BLOB_ENDPOINT", "https://data1.blob.core.windows.net/?sig=C4n4rY"}},
       "neither https://ACCOUNT.DOMAIN"},
      {"az://images",
       {{"AZURE_STORAGE_ACCOUNT", "data1"}, {"AZURE_STORAGE_BLOB_ENDPOINT", "https://data2.blob.core.windows.net"}},
       "'https://data2.blob.core.windows.net'"},
      {"az://images",
       {{"AZURE_STORAGE_ACCOUNT", "data1"}, {"AZURE_STORAGE_BLOB_ENDPOINT", "http://localhost:10000/a/data1"}},
       "HOST:PORT/ACCOUNT"},
  };
  for (const auto& entry : cases) {
    EXPECT_THAT(message_for(entry.location, entry.variables),
                AllOf(HasSubstr(entry.complaint), Not(HasSubstr("C4n4rY"))));
  }
}

}  // namespace
}  // namespace libtrain::data::detail
