#include <libtrain/data/formats/image_folder.hpp>

#include <sys/stat.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/storage/local_storage.hpp>

#include <tests/data/storage/memory_storage.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::MemoryStorage;
using libtrain::test::message_of;
using libtrain::test::TemporaryFolder;
using libtrain::test::write_file;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

std::vector<std::pair<std::string, int>> images_of(const ImageList& list) {
  std::vector<std::pair<std::string, int>> images;
  for (std::size_t i = 0; i < list.size(); ++i) images.emplace_back(list.path(i), static_cast<int>(list.label(i)));
  return images;
}

std::string refusal(const Storage& storage, const std::string& folder) {
  return message_of<EnvironmentError>([&] { list_image_folder(storage, folder); });
}

class ImageFolderList : public ::testing::Test {
 protected:
  void put(const std::vector<std::string>& paths) {
    for (const auto& path : paths) storage_.put(path, std::string(path.size(), 'x'));
  }

  MemoryStorage storage_;
};

// As torchvision sorts os.walk(); parquet_peer_test.py compares random folders with torchvision itself.
TEST_F(ImageFolderList, OrdersClassesThenFoldersThenNames) {
  put({"cat/b.jpg", "cat/a.jpg", "cat/z/a.jpg", "cat/z-1/a.jpg", "cat-2/a.jpg"});
  put({"Dog/1.png", "Dog/10.png", "Dog/2.png"});
  const auto list = list_image_folder(storage_, "");
  EXPECT_THAT(list.classes(), ElementsAre("Dog", "cat", "cat-2"));
  EXPECT_THAT(images_of(list), ElementsAre(Pair("Dog/1.png", 0), Pair("Dog/10.png", 0), Pair("Dog/2.png", 0),
                                           Pair("cat/a.jpg", 1), Pair("cat/b.jpg", 1), Pair("cat/z/a.jpg", 1),
                                           Pair("cat/z-1/a.jpg", 1), Pair("cat-2/a.jpg", 2)));
}

TEST_F(ImageFolderList, ComparesNamesByCodePoint) {
  put({"\xc3\xa4/a.jpg", "z/a.jpg", "\xf0\x9f\x99\x82/a.jpg", "\xef\xbc\xa1/a.jpg"});
  EXPECT_THAT(list_image_folder(storage_, "").classes(),
              ElementsAre("z", "\xc3\xa4", "\xef\xbc\xa1", "\xf0\x9f\x99\x82"));
}

TEST_F(ImageFolderList, KnowsSizesAndWhereAClassBegins) {
  put({"train/a/1.jpg", "train/a/22.jpg", "train/b/333.jpg", "validation/a/1.jpg"});
  const auto list = list_image_folder(storage_, "train");
  ASSERT_EQ(list.size(), 3U);
  EXPECT_EQ(list.path(1), "train/a/22.jpg");
  EXPECT_EQ(list.bytes(1), 14U);
  EXPECT_EQ(list.class_name(list.label(2)), "b");
  EXPECT_EQ(list.begin_of(0), 0U);
  EXPECT_EQ(list.begin_of(1), 2U);
  EXPECT_EQ(list.begin_of(2), 3U);
  EXPECT_EQ(storage_.counts().lists, 1U);
  EXPECT_EQ(storage_.counts().opens, 0U);
}

TEST_F(ImageFolderList, TakesEndingsInAnyCaseAndIgnoresOtherFiles) {
  put({"a/1.JPEG", "a/2.Png", "a/3.jpg", "a/notes.txt", "a/jpg", "a/4.jpg.part", "a/.jpg", "readme.jpg"});
  EXPECT_THAT(images_of(list_image_folder(storage_, "")),
              ElementsAre(Pair("a/.jpg", 0), Pair("a/1.JPEG", 0), Pair("a/2.Png", 0), Pair("a/3.jpg", 0)));
}

TEST_F(ImageFolderList, NamesTheFirstImageThatCannotBeDecoded) {
  put({"a/1.jpg", "b/2.WebP", "b/3.tif"});
  EXPECT_THAT(refusal(storage_, ""), AllOf(HasSubstr("memory://set"), HasSubstr("'b/2.WebP'")));
}

TEST_F(ImageFolderList, SkipsAndCountsWhatCannotBeDecodedWhereItIsToldTo) {
  put({"a/1.jpg", "a/2.webp", "a/3.ppm", "a/4.bmp", "a/5.pgm", "a/6.tif", "a/7.tiff", "a/8.txt"});
  const auto list = list_image_folder(storage_, "", {.skip_unsupported = true});
  EXPECT_EQ(list.size(), 1U);
  EXPECT_EQ(list.skipped(), 6U);
}

TEST_F(ImageFolderList, RefusesAClassWithoutImagesUnlessItIsAllowed) {
  put({"a/1.jpg", "b/notes.txt", "c/1.jpg"});
  EXPECT_THAT(refusal(storage_, ""), HasSubstr("found none in 'b'"));
  const auto list = list_image_folder(storage_, "", {.allow_empty_classes = true});
  EXPECT_THAT(list.classes(), ElementsAre("a", "b", "c"));
  EXPECT_THAT(images_of(list), ElementsAre(Pair("a/1.jpg", 0), Pair("c/1.jpg", 2)));
  EXPECT_EQ(list.begin_of(1), list.begin_of(2));
}

// What torchvision does: otherwise c would become class 1.
TEST_F(ImageFolderList, RefusesAClassWithoutAnyFile) {
  put({"a/1.jpg", "b/", "c/1.jpg", "d/deep/", "e/1.jpg"});
  EXPECT_THAT(refusal(storage_, ""), AllOf(HasSubstr("memory://set"), HasSubstr("found none in 'b' and 1 more;")));
  EXPECT_THAT(refusal(storage_, ""), Not(HasSubstr("allow_empty_classes")));  // no program has an option of this name
  const auto list = list_image_folder(storage_, "", {.allow_empty_classes = true});
  EXPECT_THAT(list.classes(), ElementsAre("a", "b", "c", "d", "e"));
  EXPECT_THAT(images_of(list), ElementsAre(Pair("a/1.jpg", 0), Pair("c/1.jpg", 2), Pair("e/1.jpg", 4)));
}

class ImageFolderOnDisk : public ::testing::Test {
 protected:
  ImageFolderOnDisk() {
    for (const std::string name : {"a", "b", "c"}) std::filesystem::create_directory(root_ / name);
    for (const std::string name : {"a/1.jpg", "c/1.jpg"}) write_file((root_ / name).string(), "x");
  }

  std::string refusal() const {
    return message_of<EnvironmentError>([&] { list_image_folder(LocalStorage{root_.string()}, ""); });
  }

  const TemporaryFolder folder_;
  const std::filesystem::path root_ = folder_.path();
};

TEST_F(ImageFolderOnDisk, RefusesAClassThatHoldsNothingToTrainOn) {
  EXPECT_THAT(refusal(), AllOf(HasSubstr(root_.string()), HasSubstr("found none in 'b'")));
  ASSERT_EQ(mkfifo((root_ / "b/fifo").c_str(), 0600), 0);
  EXPECT_THAT(refusal(), HasSubstr("found none in 'b'"));
  std::filesystem::remove_all(root_ / "b");
  std::filesystem::create_directory_symlink(".", root_ / "b");  // into itself
  EXPECT_THAT(refusal(), HasSubstr("found none in 'b'"));
}

TEST_F(ImageFolderOnDisk, RefusesALinkThatMayHaveLedToAClass) {
  std::filesystem::remove_all(root_ / "b");
  std::filesystem::create_directory_symlink("/nowhere/b", root_ / "b");
  EXPECT_THAT(refusal(), AllOf(HasSubstr(root_.string()), HasSubstr("'b', a link that leads nowhere")));
}

// As torchvision does: reading it fails, or makes a bad sample.
TEST_F(ImageFolderOnDisk, KeepsImagesThatCannotBeRead) {
  std::filesystem::create_symlink("nowhere.jpg", root_ / "b/1.jpg");
  std::filesystem::create_symlink("nowhere.txt", root_ / "b/1.txt");
  ASSERT_EQ(mkfifo((root_ / "a/2.png").c_str(), 0600), 0);
  const LocalStorage storage{root_.string()};
  const auto list = list_image_folder(storage, "");
  EXPECT_THAT(images_of(list),
              ElementsAre(Pair("a/1.jpg", 0), Pair("a/2.png", 0), Pair("b/1.jpg", 1), Pair("c/1.jpg", 2)));
  EXPECT_THAT(message_of<EnvironmentError>([&] { storage.open("b/1.jpg"); }),
              AllOf(HasSubstr("b/1.jpg'"), HasSubstr("No such file")));
}

TEST_F(ImageFolderList, RefusesAFolderWithoutClasses) {
  put({"train/1.jpg", "train/2.jpg"});
  EXPECT_THAT(refusal(storage_, "train"), AllOf(HasSubstr("memory://set/train"), HasSubstr("2 files")));
  EXPECT_THAT(refusal(storage_, "missing"), HasSubstr("0 files"));
}

}  // namespace
}  // namespace libtrain::data
