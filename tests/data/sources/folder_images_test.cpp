#include <libtrain/data/sources/folder_images.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/stage_clock.hpp>
#include <libtrain/data/storage/cached_storage.hpp>
#include <libtrain/data/storage/file_cache.hpp>

#include <tests/data/sources/image_sets.hpp>
#include <tests/data/storage/cache_test_support.hpp>
#include <tests/data/storage/memory_storage.hpp>
#include <tests/support/log_sinks.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::all_of;
using libtrain::test::bytes_counted;
using libtrain::test::CapturedLog;
using libtrain::test::image_of;
using libtrain::test::Labelled;
using libtrain::test::MemoryStorage;
using libtrain::test::message_of;
using libtrain::test::read_message;
using libtrain::test::SetFolder;
using libtrain::test::Signal;
using libtrain::test::SilentLog;
using libtrain::test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

// What it does as other sources do is in image_source_test.cpp.

class FolderImagesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    storage_->put("train/dog/1.jpg", "a dog");
    storage_->put("train/cat/2.png", "another cat");
    storage_->put("train/cat/1.jpg", "a cat");
    storage_->put("train/emu/1.jpeg", "");
    storage_->put("validation/cat/1.jpg", "no cat");
  }

  const std::shared_ptr<MemoryStorage> storage_ = std::make_shared<MemoryStorage>();
};

TEST_F(FolderImagesTest, ReadsImagesInTheOrderOfTheirClasses) {
  const FolderImages images(storage_, {.folder = "train"});
  EXPECT_EQ(images.name(), "memory://set/train");
  EXPECT_EQ(images.size(), 4U);
  EXPECT_THAT(images.classes(), ElementsAre("cat", "dog", "emu"));
  EXPECT_THAT(all_of(images), ElementsAre(Pair("a cat", 0), Pair("another cat", 0), Pair("a dog", 1), Pair("", 2)));
  EXPECT_THAT(images.blocks(), IsEmpty());
}

TEST_F(FolderImagesTest, KnowsWhereAnImageIsStored) {
  const FolderImages images(storage_, {.folder = "train"});
  EXPECT_EQ(images.origin(1).path, "memory://set/train/cat/2.png");
  EXPECT_EQ(images.origin(1).offset, 0U);
  EXPECT_EQ(images.origin(1).bytes, 11U);
}

TEST_F(FolderImagesTest, NamesFilesOfARootWithOneSlash) {
  const auto storage = std::make_shared<MemoryStorage>("/");
  storage->put("cat/1.jpg", "a cat");
  const FolderImages images(storage);
  EXPECT_EQ(images.name(), "/");
  EXPECT_EQ(images.origin(0).path, "/cat/1.jpg");
}

TEST_F(FolderImagesTest, CountsTheBytesOfFiles) {
  const FolderImages images(storage_, {.folder = "train"});
  EXPECT_EQ(bytes_counted(images, 1), 11U);
  EXPECT_EQ(bytes_counted(images, 2), 5U);
}

TEST_F(FolderImagesTest, ListsOnceWithAManifest) {
  const TemporaryFolder folder;
  const FolderImagesOptions options{.folder = "train", .manifest = folder.path()};
  const auto expected = all_of(FolderImages(storage_, {.folder = "train"}));
  const auto before = storage_->counts().lists.load();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(all_of(FolderImages(storage_, options)), expected);
  EXPECT_EQ(storage_->counts().lists, before + 1);
}

TEST_F(FolderImagesTest, ChecksTheManifestWhereItIsToldTo) {
  const TemporaryFolder folder;
  const FolderImagesOptions options{.folder = "train", .manifest = folder.path()};
  EXPECT_EQ(FolderImages(storage_, options).size(), 4U);
  storage_->put("train/cat/3.jpg", "a third cat");
  EXPECT_EQ(FolderImages(storage_, options).size(), 4U);
  auto rechecked = options;
  rechecked.recheck = Recheck::full;
  EXPECT_EQ(FolderImages(storage_, rechecked).size(), 5U);
}

TEST_F(FolderImagesTest, ListsAsTheOptionsSay) {
  storage_->put("train/fox/1.webp", "x");
  EXPECT_THAT(message_of<EnvironmentError>([&] { FolderImages(storage_, {.folder = "train"}); }),
              HasSubstr("train/fox/1.webp"));
  const ImageFolderOptions listing{.skip_unsupported = true, .allow_empty_classes = true};
  const FolderImages images(storage_, {.folder = "train", .listing = listing});
  EXPECT_EQ(images.size(), 4U);
  EXPECT_THAT(images.classes(), ElementsAre("cat", "dog", "emu", "fox"));
}

TEST_F(FolderImagesTest, TakesAListThatWasMadeBefore) {
  ImageList list;
  list.add_class("other");
  list.add_class("cat");
  list.add("validation/cat/1.jpg", 1, 6);
  const FolderImages images(storage_, "validation", list);
  EXPECT_EQ(images.name(), "memory://set/validation");
  EXPECT_THAT(all_of(images), ElementsAre(Pair("no cat", 1)));
  EXPECT_EQ(storage_->counts().lists, 0U);
}

TEST_F(FolderImagesTest, RefusesAFolderWithoutImages) {
  storage_->put("empty/cat/notes.txt", "x");
  const ImageFolderOptions listing{.allow_empty_classes = true};
  EXPECT_THAT(message_of<EnvironmentError>([&] { FolderImages(storage_, {.folder = "empty", .listing = listing}); }),
              AllOf(HasSubstr("'memory://set/empty'"), HasSubstr("found none")));
  EXPECT_THAT(message_of<EnvironmentError>([&] { FolderImages(storage_, "empty", ImageList{}); }),
              HasSubstr("'memory://set/empty'"));
}

TEST_F(FolderImagesTest, NeedsAStorageWithAListToo) {
  EXPECT_THROW(FolderImages(nullptr, "", ImageList{}), UsageError);
}

TEST_F(FolderImagesTest, NamesAFileThatCannotBeRead) {
  const FolderImages images(storage_, {.folder = "train"});
  storage_->remove("train/cat/1.jpg");
  storage_->fail_after("train/cat/2.png", 5);
  EXPECT_THAT(read_message(images, 0), HasSubstr("memory://set/train/cat/1.jpg"));
  EXPECT_THAT(read_message(images, 1), HasSubstr("memory://set/train/cat/2.png"));
  EXPECT_EQ(image_of(images, 2), Labelled("a dog", 1));
}

// Of a gibibyte and a byte, which takes no space on the disk.
TEST_F(FolderImagesTest, RefusesAFileTooLongForAnImage) {
  const SetFolder folder;
  folder.write("cat/1.jpg", "");
  const std::string path = folder.path() + "/cat/1.jpg";
  std::filesystem::resize_file(path, (std::uintmax_t{1} << 30) + 1);
  const FolderImages images(folder.storage());
  EncodedImage image;
  EXPECT_THAT(message_of<EnvironmentError>([&] { images.read(0, image); }),
              AllOf(HasSubstr(path), HasSubstr("at most 1073741824 bytes, found 1073741825")));
  EXPECT_LT(image.bytes.capacity(), 1000U);
}

TEST_F(FolderImagesTest, FetchesNothingAheadWithoutACache) {
  const FolderImages images(storage_, {.folder = "train"});
  const auto order = []() -> std::vector<std::uint64_t> { throw std::logic_error("the order was asked for"); };
  EXPECT_EQ(images.read_ahead(order), nullptr);
}

class FolderImagesInACache : public FolderImagesTest {
 protected:
  std::shared_ptr<const CachedStorage> cached(std::uint64_t limit_bytes = std::uint64_t{1} << 30) const {
    const FileCacheOptions options{
        .directory = scratch_ / "cache", .limit_bytes = limit_bytes, .free_space_reserve_bytes = 0};
    return std::make_shared<const CachedStorage>(storage_, std::make_shared<FileCache>(options));
  }

  const TemporaryFolder scratch_;
};

// One thread fetches, so that a file has its copy once the next one is being read.
TEST_F(FolderImagesInACache, AreFetchedAheadInTheirOrder) {
  const Signal reading;
  std::vector<std::string> fetched;
  storage_->before_read = [&](const std::string& path, std::uint64_t) {
    fetched.push_back(path);
    reading.give();
  };
  const FolderImages images(cached(), {.folder = "train", .read_ahead = {.threads = 1, .files_ahead = 2}});
  const auto ahead = images.read_ahead([] { return std::vector<std::uint64_t>{2, 0, 1}; });
  ASSERT_NE(ahead, nullptr);
  reading.wait();
  reading.wait();
  EXPECT_THAT(fetched, ElementsAre("train/dog/1.jpg", "train/cat/1.jpg"));
  ahead->advance(1);
  reading.wait();
  EXPECT_THAT(fetched, ElementsAre("train/dog/1.jpg", "train/cat/1.jpg", "train/cat/2.png"));

  StageClock clock;
  EXPECT_EQ(image_of(images, 2), Labelled("a dog", 1));
  EXPECT_EQ(image_of(images, 0), Labelled("a cat", 0));
  EXPECT_EQ(clock.counts().cache_hits, 2U);
  EXPECT_EQ(clock.counts().cache_misses, 0U);
  EXPECT_EQ(storage_->counts().opens, 3U);
}

// In a cache without room, so that no fetch asks for a file.
TEST_F(FolderImagesInACache, ListedByAManifestAreListedOnceMoreAndNotAskedForOneByOne) {
  const FolderImagesOptions options{.folder = "train", .manifest = scratch_ / "manifest"};
  EXPECT_EQ(FolderImages(cached(), options).size(), 4U);
  const auto lists = storage_->counts().lists.load();
  const SilentLog silence;
  const FolderImages images(cached(0), options);
  EXPECT_EQ(storage_->counts().lists, lists);
  const auto order = [] { return std::vector<std::uint64_t>{3, 2, 1, 0}; };
  for (int epoch = 0; epoch < 2; ++epoch) EXPECT_NE(images.read_ahead(order), nullptr);
  EXPECT_EQ(storage_->counts().lists, lists + 1);
  EXPECT_EQ(storage_->counts().infos, 0U);
}

TEST_F(FolderImagesInACache, AreNotFetchedAheadWhereOneIsGoneWhichIsLeftToItsReader) {
  const FolderImagesOptions options{.folder = "train", .manifest = scratch_ / "manifest"};
  EXPECT_EQ(FolderImages(cached(), options).size(), 4U);
  storage_->remove("train/cat/2.png");
  const FolderImages images(cached(), options);
  const CapturedLog log;
  EXPECT_EQ(images.read_ahead([] { return std::vector<std::uint64_t>{0, 1}; }), nullptr);
  EXPECT_THAT(log.lines(),
              ElementsAre(AllOf(HasSubstr("'memory://set/train'"), HasSubstr("memory://set/train/cat/2.png"))));
}

TEST_F(FolderImagesInACache, RefuseAnOrderAndOptionsThatMakeNoSense) {
  const FolderImages images(cached(), {.folder = "train"});
  EXPECT_THAT(message_of<UsageError>([&] { images.read_ahead([] { return std::vector<std::uint64_t>{0, 4}; }); }),
              HasSubstr("Image 4"));
  const FolderImages wrong(cached(), {.folder = "train", .read_ahead = {.files_ahead = 0}});
  EXPECT_THAT(message_of<UsageError>([&] { wrong.read_ahead([] { return std::vector<std::uint64_t>{0}; }); }),
              HasSubstr("files_ahead"));
}

}  // namespace
}  // namespace libtrain::data
