#include <libtrain/data/storage/cached_storage.hpp>

#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/data/storage/cache_test_support.hpp>
#include <tests/data/storage/memory_storage.hpp>
#include <tests/support/log_sinks.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

using test::content_of;
using test::MemoryStorage;
using test::message_of;
using test::SilentLog;
using test::TemporaryFolder;
using ::testing::HasSubstr;

class CachedStorageTest : public ::testing::Test {
 protected:
  FileCacheOptions options() const { return {.directory = scratch_.path(), .free_space_reserve_bytes = 0}; }

  std::string read(const std::string& path) const { return read_all(*storage_.open(path), 1 << 20); }

  const TemporaryFolder scratch_;
  const std::shared_ptr<MemoryStorage> remote_ = std::make_shared<MemoryStorage>();
  const std::shared_ptr<FileCache> cache_ = std::make_shared<FileCache>(options());
  const CachedStorage storage_{remote_, cache_};
};

TEST_F(CachedStorageTest, AsksTheRemoteStorageOnlyOncePerFile) {
  remote_->put("a", content_of(5000, 1));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(read("a"), content_of(5000, 1));
  EXPECT_EQ(remote_->counts().opens, 1u);
  EXPECT_EQ(remote_->counts().infos, 2u);  // which version there is, and that it was that one until the last read
  EXPECT_EQ(cache_->statistics().hits, 4u);
}

TEST_F(CachedStorageTest, AsksNothingAboutFilesThatWereListedAndHaveACopy) {
  remote_->put("folder/a", content_of(5000, 1));
  read("folder/a");
  const CachedStorage another(remote_, cache_);
  another.list("folder");
  EXPECT_EQ(read_all(*another.open("folder/a"), 5000), content_of(5000, 1));
  EXPECT_EQ(remote_->counts().opens, 1u);
  EXPECT_EQ(remote_->counts().infos, 2u);
}

TEST_F(CachedStorageTest, GivesNothingOfAnotherStorageOfTheSameName) {
  remote_->put("a", content_of(5000, 1));
  read("a");
  const auto other = std::make_shared<MemoryStorage>(remote_->name(), "another folder");
  other->put("a", content_of(5000, 2));
  EXPECT_EQ(read_all(*CachedStorage(other, cache_).open("a"), 5000), content_of(5000, 2));
}

TEST_F(CachedStorageTest, KnowsWhatWasListedOrAskedAbout) {
  remote_->put("folder/a", "1");
  remote_->put("b", "2");
  EXPECT_FALSE(storage_.knows("b"));
  storage_.list("folder");
  EXPECT_TRUE(storage_.knows("folder/a"));
  EXPECT_FALSE(storage_.knows("b"));
  storage_.key_of("b");
  EXPECT_TRUE(storage_.knows("b"));
  EXPECT_EQ(remote_->counts().infos, 1u);
}

TEST_F(CachedStorageTest, IsTheRemoteStorageButForTheCopies) {
  remote_->put("b", "22", "2");
  remote_->put("a", "1", "1");
  EXPECT_EQ(storage_.name(), "memory://set");
  EXPECT_EQ(storage_.info("b").size, 2u);
  EXPECT_EQ(storage_.info("b").version, "2");
  const auto files = storage_.list("");
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].path, "a");
  EXPECT_EQ(files[1].path, "b");
  EXPECT_EQ(storage_.key_of("a"), cache_key("memory://set", files[0]));
  EXPECT_THAT(message_of<EnvironmentError>([&] { storage_.open("c"); }), HasSubstr("memory://set/c"));
  EXPECT_THAT(message_of<EnvironmentError>([&] { storage_.info("c"); }), HasSubstr("memory://set/c"));
}

TEST_F(CachedStorageTest, GivesTheVersionThatWasThereFirst) {
  remote_->put("a", "first", "1");
  EXPECT_EQ(read("a"), "first");
  remote_->put("a", "other", "2");
  EXPECT_EQ(read("a"), "first");
}

TEST_F(CachedStorageTest, AChangeBeforeTheDownloadIsAnErrorAndThenTheNewVersion) {
  remote_->put("a", "first", "1");
  storage_.list("");
  remote_->put("a", "other", "2");
  EXPECT_THAT(message_of<EnvironmentError>([&] { read("a"); }), HasSubstr("has changed since it was listed"));
  EXPECT_EQ(read("a"), "other");
}

TEST_F(CachedStorageTest, WithoutACacheThatWorksIsTheRemoteStorage) {
  remote_->put("a", content_of(5000, 1));
  auto nothing = options();
  nothing.limit_bytes = 0;
  const SilentLog silence;
  const CachedStorage storage(remote_, std::make_shared<FileCache>(nothing));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(read_all(*storage.open("a"), 5000), content_of(5000, 1));
  EXPECT_EQ(remote_->counts().opens, 2u);
}

TEST_F(CachedStorageTest, NeedsBothParts) {
  EXPECT_THROW(CachedStorage(nullptr, cache_), UsageError);
  EXPECT_THROW(CachedStorage(remote_, nullptr), UsageError);
}

}  // namespace
}  // namespace libtrain::data
