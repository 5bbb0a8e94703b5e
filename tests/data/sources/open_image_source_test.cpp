#include <libtrain/data/sources/open_image_source.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/storage/cached_storage.hpp>
#include <libtrain/data/storage/file_cache.hpp>

#include <tests/data/sources/image_sets.hpp>
#include <tests/data/storage/memory_storage.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::all_of;
using libtrain::test::MemoryStorage;
using libtrain::test::message_of;
using libtrain::test::TemporaryFolder;
using libtrain::test::tf_record_file;
using libtrain::test::web_dataset_file;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

class OpenImageSource : public ::testing::Test {
 protected:
  std::unique_ptr<const ImageSource> open(const OpenImageSourceOptions& options = {}) const {
    return open_image_source(storage_, options);
  }

  std::string message(const OpenImageSourceOptions& options = {}) const {
    return message_of<EnvironmentError>([&] { open(options); });
  }

  const std::shared_ptr<MemoryStorage> storage_ = std::make_shared<MemoryStorage>();
};

TEST_F(OpenImageSource, FindsTfRecords) {
  storage_->put("train/a.tfrecord", tf_record_file({{"a", 4}}));
  storage_->put("train/classes.txt", "ant\nbee\ncat\ndog\n");
  const auto images = open({.folder = "train", .tf_record_images = {.folder = "other", .label_offset = -1}});
  EXPECT_EQ(storage_->counts().lists, 1U);
  EXPECT_NE(dynamic_cast<const TfRecordImages*>(images.get()), nullptr);
  EXPECT_EQ(images->name(), "memory://set/train");
  EXPECT_THAT(all_of(*images), ElementsAre(Pair("a", 3)));
  EXPECT_THAT(images->classes(), ElementsAre("ant", "bee", "cat", "dog"));
}

TEST_F(OpenImageSource, FindsTarArchives) {
  storage_->put("train/a.tar", web_dataset_file({{"a", 4}}));
  const auto images = open({.folder = "train", .web_dataset_images = {.image_extensions = {"jpg"}}});
  EXPECT_NE(dynamic_cast<const WebDatasetImages*>(images.get()), nullptr);
  EXPECT_EQ(images->name(), "memory://set/train");
  EXPECT_THAT(all_of(*images), ElementsAre(Pair("a", 4)));
}

// Here it is one that cannot be read; parquet_images_peer_test.py opens those that can.
TEST_F(OpenImageSource, FindsParquetFiles) {
  storage_->put("train/a.parquet", "no Parquet");
  EXPECT_THAT(message({.folder = "train"}), AllOf(HasSubstr("train/a.parquet"), HasSubstr("Parquet")));
}

TEST_F(OpenImageSource, FindsFoldersOfImages) {
  storage_->put("train/cat/1.jpg", "a");
  storage_->put("train/dog/1.jpg", "b");
  storage_->put("train/readme.txt", "x");
  const auto images = open({.folder = "train"});
  EXPECT_NE(dynamic_cast<const FolderImages*>(images.get()), nullptr);
  EXPECT_EQ(images->name(), "memory://set/train");
  EXPECT_THAT(all_of(*images), ElementsAre(Pair("a", 0), Pair("b", 1)));
  EXPECT_THAT(images->classes(), ElementsAre("cat", "dog"));
}

TEST_F(OpenImageSource, TakesTheRootWithoutOptions) {
  storage_->put("a.tar", web_dataset_file({{"a", 4}}));
  EXPECT_THAT(all_of(*open()), ElementsAre(Pair("a", 4)));
}

TEST_F(OpenImageSource, ListsAFolderOfImagesOnce) {
  storage_->put("train/cat/1.jpg", "a");
  open({.folder = "train"});
  EXPECT_EQ(storage_->counts().lists, 1U);
  const TemporaryFolder folder;
  const OpenImageSourceOptions options{.folder = "train", .index_folder = folder.path()};
  open(options);
  EXPECT_EQ(storage_->counts().lists, 2U);
  for (int i = 0; i < 3; ++i) EXPECT_THAT(all_of(*open(options)), ElementsAre(Pair("a", 0)));
  EXPECT_EQ(storage_->counts().lists, 2U);
}

TEST_F(OpenImageSource, FetchesFoldersOfImagesAheadAsItIsToldTo) {
  storage_->put("train/cat/1.jpg", "a");
  const TemporaryFolder folder;
  const FileCacheOptions cache{.directory = folder.path(), .free_space_reserve_bytes = 0};
  const auto cached = std::make_shared<const CachedStorage>(storage_, std::make_shared<FileCache>(cache));
  const auto order = [] { return std::vector<std::uint64_t>{0}; };
  EXPECT_NE(open_image_source(cached, {.folder = "train"})->read_ahead(order), nullptr);
  const OpenImageSourceOptions wrong{.folder = "train", .folder_images = {.read_ahead = {.threads = 0}}};
  EXPECT_THROW(open_image_source(cached, wrong)->read_ahead(order), UsageError);
}

TEST_F(OpenImageSource, ChecksTheListWhereItIsToldTo) {
  storage_->put("train/cat/1.jpg", "a");
  const TemporaryFolder folder;
  const OpenImageSourceOptions options{
      .folder = "train", .index_folder = folder.path(), .folder_images = {.recheck = Recheck::full}};
  open(options);
  storage_->put("train/dog/1.jpg", "b");
  EXPECT_EQ(open(options)->size(), 2U);
}

TEST_F(OpenImageSource, KeepsTheIndicesOfShards) {
  storage_->put("records/a.tfrecord", tf_record_file({{"a", 4}}));
  storage_->put("archives/a.tar", web_dataset_file({{"a", 4}}));
  const TemporaryFolder folder;
  for (const std::string set : {"records", "archives"}) {
    const OpenImageSourceOptions options{.folder = set, .index_folder = folder.path()};
    open(options);
    const auto before = storage_->counts().bytes_read.load();
    open(options);
    EXPECT_EQ(storage_->counts().bytes_read, before) << set;
  }
}

TEST_F(OpenImageSource, TakesOneSplitByThePrefixOfItsNames) {
  storage_->put("train-0.tar", web_dataset_file({{"a", 4}}));
  storage_->put("validation-00000-of-00001", tf_record_file({{"b", 5}}));
  EXPECT_THAT(all_of(*open({.prefix = "train"})), ElementsAre(Pair("a", 4)));
  EXPECT_THAT(all_of(*open({.prefix = "validation"})), ElementsAre(Pair("b", 5)));
}

TEST_F(OpenImageSource, RefusesSeveralSplitsWithoutAPrefix) {
  storage_->put("train-0.tar", web_dataset_file({{"a", 4}}));
  storage_->put("val-0.tar", web_dataset_file({{"b", 5}}));
  EXPECT_THAT(message(), AllOf(HasSubstr("'train', 'val'"), HasSubstr("prefix")));
  EXPECT_THAT(all_of(*open({.prefix = "val"})), ElementsAre(Pair("b", 5)));
}

TEST_F(OpenImageSource, RefusesSeveralKindsOfShards) {
  storage_->put("train/a.tar", web_dataset_file({{"a", 4}}));
  storage_->put("train/b.tgz", web_dataset_file({{"a", 4}}));
  storage_->put("train/a.tfrecord", tf_record_file({{"a", 4}}));
  EXPECT_THAT(message({.folder = "train"}),
              AllOf(HasSubstr("'memory://set/train'"), HasSubstr("tar archives (2)"), HasSubstr("TFRecord files (1)"),
                    Not(HasSubstr("Parquet files (")), Not(HasSubstr("images in folders ("))));
}

TEST_F(OpenImageSource, RefusesShardsBesideFoldersOfImages) {
  storage_->put("train/a.tar", web_dataset_file({{"a", 4}}));
  storage_->put("train/cat/1.JPEG", "a");
  storage_->put("train/cat/2.png", "b");
  storage_->put("train/cat/.listing", "c");
  EXPECT_THAT(message({.folder = "train"}), AllOf(HasSubstr("tar archives (1)"), HasSubstr("images in folders (2)")));
}

TEST_F(OpenImageSource, IgnoresFoldersOfOtherFilesBesideShards) {
  storage_->put("train/a.tar", web_dataset_file({{"a", 4}}));
  storage_->put("train/.index/a.tar-0011223344556677.tar-index", "x");
  EXPECT_EQ(open({.folder = "train"})->size(), 1U);
}

TEST_F(OpenImageSource, SaysWhatIsExpectedOfAFolderThatHoldsNothingOfIt) {
  storage_->put("train/1.jpg", "a");
  storage_->put("train/2.jpg", "b");
  EXPECT_THAT(message({.folder = "train"}),
              AllOf(HasSubstr("'memory://set/train'"), HasSubstr("Parquet files, tar archives or TFRecord files"),
                    HasSubstr("2 other files")));
  EXPECT_THAT(message({.folder = "missing"}), HasSubstr("'memory://set/missing'"));
}

TEST_F(OpenImageSource, SaysWhichImagesCannotBeDecoded) {
  storage_->put("train/cat/1.webp", "a");
  EXPECT_THAT(message({.folder = "train"}), HasSubstr("'train/cat/1.webp'"));
}

TEST_F(OpenImageSource, NeedsAStorage) {
  EXPECT_THROW(open_image_source(nullptr), UsageError);
}

}  // namespace
}  // namespace libtrain::data
