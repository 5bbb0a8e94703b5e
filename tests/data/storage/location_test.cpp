#include <libtrain/data/storage/detail/location.hpp>

#include <cstddef>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string message_for(const std::string& location) {
  return libtrain::test::message_of<UsageError>([&] { detail::parse_location(location); });
}

struct LocalCase {
  std::string location;
  std::string path;
};

TEST(Location, TakesLocalPathsByteForByte) {
  const std::vector<LocalCase> cases{
      {"data", "data"},
      {"/data/train", "/data/train"},
      {"/data/train/", "/data/train"},
      {"data///", "data"},
      {"/", "/"},
      {".", "."},
      {"../up", "../up"},
      {"a b%20c?d#e", "a b%20c?d#e"},
      {"s3/bucket", "s3/bucket"},
      {"data:v1/train", "data:v1/train"},
      {"C:/data", "C:/data"},
      {"1s3://x", "1s3://x"},
      {"caf\xc3\xa9", "caf\xc3\xa9"},
      {"file:///data/train", "/data/train"},
      {"file://localhost/data/", "/data"},
      {"FILE:/data", "/data"},
      {"file:///a%20b%2Fc%3Fd+e", "/a b/c?d+e"},
      {"file:///", "/"},
  };
  for (const auto& entry : cases) {
    const auto location = detail::parse_location(entry.location);
    EXPECT_EQ(location.kind, detail::StorageKind::local) << entry.location;
    EXPECT_EQ(location.path, entry.path) << entry.location;
    EXPECT_EQ(location.name, entry.path) << entry.location;
    EXPECT_EQ(location.container, "") << entry.location;
  }
}

struct AzureCase {
  std::string location;
  std::string name;
  std::string account;
  std::string endpoint;
  std::string container;
  std::string path;
  std::string sas_token;
};

TEST(Location, UnderstandsEveryFormOfAzure) {
  const std::string windows = ".blob.core.windows.net";
  const std::vector<AzureCase> cases{
      {"abfss://images@data1.dfs.core.windows.net/train/a.tar", "abfss://images@data1.dfs.core.windows.net/train/a.tar",
       "data1", windows, "images", "train/a.tar", ""},
      {"abfs://images@data1.dfs.core.windows.net", "abfs://images@data1.dfs.core.windows.net", "data1", windows,
       "images", "", ""},
      {"wasbs://images@data1.blob.core.windows.net/train/", "wasbs://images@data1.blob.core.windows.net/train", "data1",
       windows, "images", "train", ""},
      {"abfss://images@DATA1.DFS.core.windows.net/Train", "abfss://images@DATA1.DFS.core.windows.net/Train", "data1",
       windows, "images", "Train", ""},
      {"https://data1.blob.core.windows.net/images/train?sv=2022-11-02&sp=rl&sig=a%2Bb%3D",
       "https://data1.blob.core.windows.net/images/train", "data1", windows, "images", "train",
       "sv=2022-11-02&sp=rl&sig=a%2Bb%3D"},
      {"HTTPS://data1.dfs.core.windows.net/images?", "HTTPS://data1.dfs.core.windows.net/images", "data1", windows,
       "images", "", ""},
      {"abfss://data1.blob.core.windows.net/images/x", "abfss://data1.blob.core.windows.net/images/x", "data1", windows,
       "images", "x", ""},
      {"abfss://images@data1.dfs.core.windows.net/x?sig=abc", "abfss://images@data1.dfs.core.windows.net/x", "data1",
       windows, "images", "x", "sig=abc"},
      {"https://data1.z01.blob.storage.azure.net/images/x", "https://data1.z01.blob.storage.azure.net/images/x",
       "data1", ".z01.blob.storage.azure.net", "images", "x", ""},
      {"https://data1.privatelink.blob.core.windows.net/images",
       "https://data1.privatelink.blob.core.windows.net/images", "data1", ".privatelink.blob.core.windows.net",
       "images", "", ""},
      {"https://data1.blob.core.chinacloudapi.cn/images", "https://data1.blob.core.chinacloudapi.cn/images", "data1",
       ".blob.core.chinacloudapi.cn", "images", "", ""},
      {"abfss://images@data1.dfs.core.usgovcloudapi.net/x", "abfss://images@data1.dfs.core.usgovcloudapi.net/x",
       "data1", ".blob.core.usgovcloudapi.net", "images", "x", ""},
      {"az://images/train/x", "az://images/train/x", "", "", "images", "train/x", ""},
      {"az://images", "az://images", "", "", "images", "", ""},
      {"az://$web/", "az://$web", "", "", "$web", "", ""},
      {"abfss://images/train?sig=abc", "abfss://images/train", "", "", "images", "train", "sig=abc"},
      {"az://images/a%20b/c%2525%3F%23+d/caf%C3%A9", "az://images/a%20b/c%2525%3F%23+d/caf%C3%A9", "", "", "images",
       "a b/c%25?#+d/caf\xc3\xa9", ""},
      {"az://images/a b/caf\xc3\xa9", "az://images/a b/caf\xc3\xa9", "", "", "images", "a b/caf\xc3\xa9", ""},
  };
  for (const auto& entry : cases) {
    const auto location = detail::parse_location(entry.location);
    EXPECT_EQ(location.kind, detail::StorageKind::azure) << entry.location;
    EXPECT_EQ(location.name, entry.name) << entry.location;
    EXPECT_EQ(location.account, entry.account) << entry.location;
    EXPECT_EQ(location.endpoint, entry.endpoint) << entry.location;
    EXPECT_EQ(location.container, entry.container) << entry.location;
    EXPECT_EQ(location.path, entry.path) << entry.location;
    EXPECT_EQ(location.sas_token, entry.sas_token) << entry.location;
  }
}

struct BucketCase {
  std::string location;
  detail::StorageKind kind;
  std::string container;
  std::string path;
};

TEST(Location, UnderstandsBuckets) {
  const std::vector<BucketCase> cases{
      {"s3://my.bucket_1/train/x", detail::StorageKind::s3, "my.bucket_1", "train/x"},
      {"s3a://Bucket", detail::StorageKind::s3, "Bucket", ""},
      {"gs://bucket/a%25b/", detail::StorageKind::gcs, "bucket", "a%b"},
      {"GCS://bucket/x", detail::StorageKind::gcs, "bucket", "x"},
  };
  for (const auto& entry : cases) {
    const auto location = detail::parse_location(entry.location);
    EXPECT_EQ(location.kind, entry.kind) << entry.location;
    EXPECT_EQ(location.container, entry.container) << entry.location;
    EXPECT_EQ(location.path, entry.path) << entry.location;
    EXPECT_EQ(location.sas_token, "") << entry.location;
  }
}

struct BadCase {
  std::string location;
  std::string complaint;
};

TEST(Location, RefusesWhatItDoesNotUnderstandAndSaysWhatItWants) {
  const std::vector<BadCase> cases{
      {"", "is empty"},
      {std::string{"a\0b", 3}, "zero byte"},
      {"hdfs://host/x", "'hdfs' is unknown"},
      {"ftp://host/x", "az://container/path"},
      {"http://data1.blob.core.windows.net/images", "AZURE_STORAGE_BLOB_ENDPOINT"},
      {"http:images", "not encrypted"},
      {"azureml://datastores/store/paths/x", "ro_mount or download"},
      {"https://example.com/images/x", "account.blob.core.windows.net"},
      {"https://data1.blob.core.windows.net.example.com/images", "account.blob.core.windows.net"},
      {"https://data1.blob.core.windows.net:8443/images", "AZURE_STORAGE_BLOB_ENDPOINT"},
      {"https://blob.core.windows.net/images", "account.blob.core.windows.net"},
      {"https:data1.blob.core.windows.net/images", "expected '//'"},
      {"https://data1.blob.core.windows.net", "name of a container"},
      {"https:///images", "account.blob.core.windows.net"},
      {"https://my-data.blob.core.windows.net/images", "3 to 24 lower-case letters and digits"},
      {"abfss://images@example.com/x", "account.blob.core.windows.net"},
      {"abfss://@data1.dfs.core.windows.net/images", "name of a container"},
      {"abfss://Images@data1.dfs.core.windows.net/x", "3 to 63 lower-case letters"},
      {"abfss:images/x", "expected '//'"},
      {"az:///images", "name of a container"},
      {"az://my_images/x", "3 to 63 lower-case letters"},
      {"az://images/a//b", "not empty, '.' or '..'"},
      {"az://images/../other", "not empty, '.' or '..'"},
      {"az://images/a/%2e%2e/b", "not empty, '.' or '..'"},
      {"az://images/./b", "not empty, '.' or '..'"},
      {"az://images/a%2Fb", "encoded slash"},
      {"az://images/a%2", "two hexadecimal digits"},
      {"az://images/100%", "two hexadecimal digits"},
      {"az://images/a%zzb", "two hexadecimal digits"},
      {"az://images/a%00b", "control characters"},
      {"az://images/a%0Ab", "control characters"},
      {"az://images/a#b", "%23"},
      {"az://images/x?snapshot=2020", "parameter named sig"},
      {"az://images/x?sig", "parameter named sig"},
      {"s3://b/x", "3 to 222"},
      {"s3://bucket name/x", "3 to 222"},
      {"s3://bucket/x?versionId=7", "%3F"},
      {"s3:bucket/x", "expected '//'"},
      {"gs:///x", "3 to 222"},
      {"file://host/x", "on another host"},
      {"file:x/y", "absolute path"},
      {"file:", "absolute path"},
      {"file:///a%", "two hexadecimal digits"},
      {"file:///a?b", "%3F"},
  };
  for (const auto& entry : cases) {
    EXPECT_THAT(message_for(entry.location), HasSubstr(entry.complaint)) << entry.location;
  }
}

// learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules, and Google's limit for buckets.
TEST(Location, KnowsHowLongNamesMayBe) {
  const auto azure = [](std::size_t account, std::size_t container) {
    return "abfss://" + std::string(container, 'c') + "@" + std::string(account, 'a') + ".dfs.core.windows.net/x";
  };
  const auto bucket = [](std::size_t length) { return "gs://" + std::string(length, 'b') + "/x"; };
  for (const std::size_t length : {3, 24}) EXPECT_EQ(detail::parse_location(azure(length, 9)).account.size(), length);
  for (const std::size_t length : {2, 25}) EXPECT_THAT(message_for(azure(length, 9)), HasSubstr("is 3 to 24"));
  for (const std::size_t length : {3, 63}) EXPECT_EQ(detail::parse_location(azure(9, length)).container.size(), length);
  for (const std::size_t length : {2, 64}) EXPECT_THAT(message_for(azure(9, length)), HasSubstr("is 3 to 63"));
  for (const std::size_t length : {3, 222}) EXPECT_EQ(detail::parse_location(bucket(length)).container.size(), length);
  for (const std::size_t length : {2, 223}) EXPECT_THAT(message_for(bucket(length)), HasSubstr("3 to 222"));
}

TEST(Location, ErrorsNameTheLocationWithoutItsSecrets) {
  const std::vector<std::string> locations{
      "https://example.com/images?sv=1&sig=C4n4rY",
      "https://data1.blob.core.windows.net/images/%?sig=C4n4rY",
      "https://user:C4n4rY@data1.blob.core.windows.net/images",
      "https://C4n4rY@data1.blob.core.windows.net/images",
      "az://my_images/x?sig=C4n4rY#y",
      "az://images/x?token=C4n4rY",
      "s3://KEY:C4n4rY@bucket/x",
      "s3://bucket/x?sig=C4n4rY",
      "nfs://host/x?sig=C4n4rY",
      "file:///x?sig=C4n4rY",
  };
  for (const auto& location : locations) {
    EXPECT_THAT(message_for(location), AllOf(HasSubstr("Location '"), Not(HasSubstr("C4n4rY")))) << location;
  }
}

}  // namespace
}  // namespace libtrain::data
