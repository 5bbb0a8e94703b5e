#include <libtrain/data/storage/open_storage.hpp>

#include <functional>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using libtrain::test::TemporaryFolder;
using libtrain::test::write_file;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

StorageOptions with(const std::map<std::string, std::string, std::less<>>& variables) {
  return {.environment = Environment{variables}};
}

class OpenStorage : public ::testing::Test {
 protected:
  OpenStorage() { write_file(folder_ / "x", "0123"); }

  const TemporaryFolder folder_{"libtrain open%20_"};
};

TEST_F(OpenStorage, OpensLocalFoldersByPathAndByUri) {
  const std::string path = folder_.path().string();
  EXPECT_EQ(read_all(*open_storage(path)->open("x"), 4), "0123");
  EXPECT_EQ(read_all(*open_storage(path + "/")->open("x"), 4), "0123");
  std::string uri = "file://" + path;
  uri.replace(uri.find("%20"), 3, "%2520");
  EXPECT_EQ(read_all(*open_storage(uri)->open("x"), 4), "0123");
  EXPECT_EQ(open_storage(uri)->name(), path);
}

TEST_F(OpenStorage, OpensSingleFiles) {
  const auto file = open_file(folder_ / "x");
  EXPECT_EQ(file->name(), folder_ / "x");
  EXPECT_EQ(read_all(*file, 4), "0123");
  EXPECT_THAT(message_of<EnvironmentError>([&] { open_file(folder_.path()); }), HasSubstr("a folder"));
}

TEST_F(OpenStorage, NamesALocalFolderThatIsMissing) {
  EXPECT_THAT(message_of<EnvironmentError>([&] { open_storage(folder_ / "none"); }),
              AllOf(HasSubstr(folder_ / "none"), HasSubstr("No such file")));
}

TEST_F(OpenStorage, RefusesWhatIsNoLocation) {
  EXPECT_THAT(message_of<UsageError>([] { open_storage("hdfs://host/x"); }), HasSubstr("'hdfs' is unknown"));
  EXPECT_THAT(message_of<UsageError>([] { open_file("az://images"); }), HasSubstr("Give the location of a file"));
}

TEST_F(OpenStorage, SaysHowToReadObjectStoresWhereItCannot) {
  if (has_arrow()) GTEST_SKIP() << "this build reads object stores";
  EXPECT_THAT(message_of<EnvironmentError>([] { open_storage("az://images/x?sig=C4n4rY", with({})); }),
              AllOf(HasSubstr("'az://images/x'"), HasSubstr("-DLIBTRAIN_ARROW=ON"), Not(HasSubstr("C4n4rY"))));
}

TEST_F(OpenStorage, MakesClientsOfObjectStoresWithoutAskingThem) {
  if (!has_arrow()) GTEST_SKIP() << "this build has no clients of object stores";
  const auto azure = open_storage("az://images/train?sig=C4n4rY", with({{"AZURE_STORAGE_ACCOUNT", "data1"}}));
  EXPECT_EQ(azure->name(), "az://images/train");
  const auto google = open_storage("gs://bucket/train/", {.access = StorageAccess::anonymous});
  EXPECT_EQ(google->name(), "gs://bucket/train");
  EXPECT_THAT(message_of<EnvironmentError>([&] { azure->open("../x"); }), HasSubstr("none of them empty"));
  EXPECT_THAT(message_of<EnvironmentError>([&] { azure->list("a//b"); }), HasSubstr("none of them empty"));
}

TEST_F(OpenStorage, TellsEqualNamesInTwoStoresApart) {
  if (!has_arrow()) GTEST_SKIP() << "this build has no clients of object stores";
  const auto s3 = [](const std::string& endpoint) {
    return open_storage("s3://bucket/train", with({{"AWS_ENDPOINT_URL", endpoint},
                                                   {"AWS_REGION", "us-east-1"},
                                                   {"AWS_ACCESS_KEY_ID", "key"},
                                                   {"AWS_SECRET_ACCESS_KEY", "secret-of-the-key"}}))
        ->identity();
  };
  EXPECT_EQ(s3("http://127.0.0.1:9000"), "http://127.0.0.1:9000/bucket/train");
  EXPECT_EQ(s3("https://Minio.example"), "https://minio.example/bucket/train");
  EXPECT_EQ(s3(""), "https://amazonaws.com/bucket/train");
  const auto azure = [](const std::string& location, const std::string& account, const std::string& endpoint) {
    return open_storage(location, with({{"AZURE_STORAGE_ACCOUNT", account}, {"AZURE_STORAGE_BLOB_ENDPOINT", endpoint}}))
        ->identity();
  };
  EXPECT_EQ(azure("az://images/train?sig=C4n4rY", "data1", ""), "https://data1.blob.core.windows.net/images/train");
  EXPECT_EQ(azure("abfss://images@data1.dfs.core.windows.net/train?sig=x", "", ""),
            "https://data1.blob.core.windows.net/images/train");
  EXPECT_EQ(azure("az://images/train?sig=x", "data2", ""), "https://data2.blob.core.windows.net/images/train");
  EXPECT_EQ(azure("az://images/train?sig=x", "data1", "http://127.0.0.1:10000/data1"),
            "http://127.0.0.1:10000/data1/images/train");
  const StorageOptions emulator{
      .access = StorageAccess::anonymous,
      .environment = Environment{{{"CLOUD_STORAGE_EMULATOR_ENDPOINT", "http://localhost:1"}}}};
  EXPECT_EQ(open_storage("gs://bucket/train", emulator)->identity(), "http://localhost:1/bucket/train");
}

TEST_F(OpenStorage, NamesTheAccountThatIsMissing) {
  if (!has_arrow()) GTEST_SKIP() << "this build has no clients of object stores";
  EXPECT_THAT(message_of<EnvironmentError>([] { open_storage("az://images/train", with({})); }),
              HasSubstr("AZURE_STORAGE_ACCOUNT"));
}

}  // namespace
}  // namespace libtrain::data
