#include <libtrain/data/formats/image_folder.hpp>

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/detail/local_storage.hpp>

#include <tests/data/formats/hex_bytes.hpp>
#include <tests/data/formats/mutation.hpp>
#include <tests/data/storage/memory_storage.hpp>
#include <tests/support/log_sinks.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::CapturedLog;
using libtrain::test::MemoryStorage;
using libtrain::test::message_of;
using libtrain::test::read_file;
using libtrain::test::TemporaryFolder;
using libtrain::test::write_file;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
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
  EXPECT_THAT(refusal(storage_, ""), AllOf(HasSubstr("memory://set"), HasSubstr("found none in 'b' and 1 more.")));
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
    return message_of<EnvironmentError>([&] { list_image_folder(detail::LocalStorage{root_.string()}, ""); });
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
  EXPECT_THAT(refusal(), AllOf(HasSubstr(root_.string()), HasSubstr("'b', a broken symbolic link")));
}

// As torchvision does: reading it fails, or makes a bad sample.
TEST_F(ImageFolderOnDisk, KeepsImagesThatCannotBeRead) {
  std::filesystem::create_symlink("nowhere.jpg", root_ / "b/1.jpg");
  std::filesystem::create_symlink("nowhere.txt", root_ / "b/1.txt");
  ASSERT_EQ(mkfifo((root_ / "a/2.png").c_str(), 0600), 0);
  const detail::LocalStorage storage{root_.string()};
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

class ImageManifest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const int number : {0, 1, 2}) {
      for (const std::string name : {"cat", "dog", "emu"}) {
        storage_.put(text("train/", name, "/", number, ".jpg"), std::string(10 + name.size(), 'x'));
      }
    }
  }

  ImageList list(Recheck recheck = Recheck::none) const {
    return list_image_folder_once(storage_, "train", folder_.path(), {.recheck = recheck});
  }

  std::string path() const { return image_manifest_path(storage_, "train", folder_.path()); }
  std::uint64_t lists() const { return storage_.counts().lists; }

  MemoryStorage storage_;
  TemporaryFolder folder_;
  CapturedLog log_;
};

TEST_F(ImageManifest, ListsOnce) {
  const auto expected = list_image_folder(storage_, "train");
  EXPECT_EQ(list(), expected);
  EXPECT_EQ(lists(), 2U);
  EXPECT_EQ(list(), expected);
  EXPECT_EQ(lists(), 2U);
  EXPECT_EQ(folder_.count(), 1);
  EXPECT_THAT(log_.lines(), IsEmpty());
}

// Written out by hand but for the checksums of the message and of its key, which is in the file's name: these were
// computed in Python from the definition of CRC-32C.
TEST_F(ImageManifest, HasItsBytesSpeltOut) {
  const std::string bytes = "ltimage2" + from_hex("833601db") +                          //
                            from_hex("0a13") + "memory://set\ntrain\n" +                 // 1: key
                            from_hex("1003 1800") +                                      // 2: images, 3: skipped files
                            from_hex("2203") + "cat" + from_hex("2203") + "dog" +        // 4: classes
                            from_hex("2a0b 0a05") + "1.jpg" + from_hex("10 00 18 0d") +  // 5: name, label, bytes
                            from_hex("2a11 0a0a") + "deep/2.png" + from_hex("10 00 18 ac02") +  //
                            from_hex("2a0b 0a05") + "1.jpg" + from_hex("10 01 18 0d");
  MemoryStorage storage;
  storage.put("train/cat/1.jpg", std::string(13, 'x'));
  storage.put("train/cat/deep/2.png", std::string(300, 'x'));
  storage.put("train/dog/1.jpg", std::string(13, 'x'));
  const auto listed = list_image_folder_once(storage, "train", folder_.path());
  const std::string manifest = folder_ / "images-69a78563.manifest";
  EXPECT_EQ(read_file(manifest), bytes);
  write_file(manifest, bytes);
  EXPECT_EQ(list_image_folder_once(storage, "train", folder_.path()), listed);
  EXPECT_EQ(storage.counts().lists, 1U);
}

TEST_F(ImageManifest, RemembersEmptyClassesAndWhatWasSkipped) {
  storage_.put("train/fox/1.webp", "x");
  const ImageManifestOptions options{.folder = {.skip_unsupported = true, .allow_empty_classes = true}};
  list_image_folder_once(storage_, "train", folder_.path(), options);
  const auto remembered = list_image_folder_once(storage_, "train", folder_.path(), options);
  EXPECT_EQ(lists(), 1U);
  EXPECT_THAT(remembered.classes(), ElementsAre("cat", "dog", "emu", "fox"));
  EXPECT_EQ(remembered.size(), 9U);
  EXPECT_EQ(remembered.skipped(), 1U);
}

TEST_F(ImageManifest, BelongsToOneStorageOneFolderAndTheOptions) {
  const MemoryStorage other{"memory://other"};
  const ImageFolderOptions skipping{.skip_unsupported = true};
  EXPECT_NE(path(), image_manifest_path(other, "train", folder_.path()));
  const MemoryStorage of_another_account{storage_.name(), "memory://another/set"};
  EXPECT_NE(path(), image_manifest_path(of_another_account, "train", folder_.path()));
  EXPECT_NE(path(), image_manifest_path(storage_, "", folder_.path()));
  EXPECT_NE(path(), image_manifest_path(storage_, "train", folder_.path(), skipping));
  // One that took the place of another is noticed by what is written in it.
  const auto expected = list();
  storage_.put("other/hen/1.jpg", "x");
  list_image_folder_once(storage_, "other", folder_.path());
  write_file(path(), read_file(image_manifest_path(storage_, "other", folder_.path())));
  EXPECT_EQ(list(), expected);
}

TEST_F(ImageManifest, IsMadeAgainWithAWarningWhereItIsDamaged) {
  const auto expected = list();
  const std::string whole = read_file(path());
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::string damaged = Mutator{seed}.mutate(whole);
    if (damaged == whole) continue;
    write_file(path(), damaged);
    log_.clear();
    const auto before = lists();
    EXPECT_EQ(list(), expected) << seed;
    EXPECT_EQ(lists(), before + 1) << seed;
    EXPECT_THAT(log_.lines(), ElementsAre(AllOf(HasSubstr("warning"), HasSubstr("memory://set/train")))) << seed;
    EXPECT_EQ(read_file(path()), whole) << seed;
  }
}

TEST_F(ImageManifest, IsTrustedWithoutARecheck) {
  const auto expected = list();
  storage_.put("train/cat/9.jpg", "new");
  EXPECT_EQ(list(), expected);
  EXPECT_THAT(log_.lines(), IsEmpty());
}

// Without a listing: one look at the folders.
TEST_F(ImageManifest, NoticesAClassThatCameOrWent) {
  list();
  storage_.put("train/bee/1.jpg", "x");
  EXPECT_THAT(list().classes(), ElementsAre("bee", "cat", "dog", "emu"));
  EXPECT_THAT(log_.lines(),
              ElementsAre(AllOf(HasSubstr("warning"), HasSubstr("3 classes differ from the 4 existing folders"))));
  for (const std::string name : {"0.jpg", "1.jpg", "2.jpg"}) storage_.remove("train/cat/" + name);
  EXPECT_THAT(list().classes(), ElementsAre("bee", "dog", "emu"));
  storage_.put("train/cat/", "");
  EXPECT_THAT(message_of<EnvironmentError>([&] { list(); }), HasSubstr("found none in 'cat'"));
}

// As where the disk is not mounted.
TEST_F(ImageManifest, NoticesAFolderThatIsEmpty) {
  list();
  for (const std::string name : {"cat", "dog", "emu"}) {
    for (const std::string number : {"0", "1", "2"}) storage_.remove(text("train/", name, "/", number, ".jpg"));
  }
  EXPECT_THAT(message_of<EnvironmentError>([&] { list(); }),
              AllOf(HasSubstr("memory://set/train"), HasSubstr("found 0 files and no folder")));
  EXPECT_THAT(log_.lines(), ElementsAre(HasSubstr("3 classes differ from the 0 existing folders")));
}

// As of Google Cloud Storage.
TEST_F(ImageManifest, IsTrustedWhereTheStorageCannotTellItsFolders) {
  struct WithoutFolders : MemoryStorage {
    std::optional<std::vector<std::string>> folders(const std::string&) const override { return std::nullopt; }
  };
  WithoutFolders storage;
  storage.put("train/cat/1.jpg", "x");
  const auto listed = list_image_folder_once(storage, "train", folder_.path());
  EXPECT_EQ(list_image_folder_once(storage, "train", folder_.path()), listed);
  EXPECT_EQ(storage.counts().lists, 1U);
}

// Where as many are there as before.
TEST_F(ImageManifest, NoticesAClassOfAnotherName) {
  list();
  for (const std::string number : {"0", "1", "2"}) {
    storage_.remove("train/dog/" + number + ".jpg");
    storage_.put("train/yak/" + number + ".jpg", "yak");
  }
  EXPECT_THAT(list().classes(), ElementsAre("cat", "emu", "yak"));
}

TEST_F(ImageManifest, FullRecheckNoticesEveryChange) {
  list();
  storage_.put("train/dog/1.jpg", "of another size");
  EXPECT_EQ(list(Recheck::full), list_image_folder(storage_, "train"));
  storage_.put("train/emu/9.jpg", "x");
  EXPECT_EQ(list(Recheck::full), list_image_folder(storage_, "train"));
  EXPECT_THAT(log_.lines(),
              ElementsAre(HasSubstr("it had 9 images and has 9"), HasSubstr("it had 9 images and has 10")));
  log_.clear();
  EXPECT_EQ(list(Recheck::full), list());
  EXPECT_THAT(log_.lines(), IsEmpty());
}

TEST_F(ImageManifest, SampledRecheckNoticesWhatChangedInItsClasses) {
  list();
  EXPECT_EQ(list(Recheck::sample).size(), 9U);
  EXPECT_THAT(log_.lines(), IsEmpty());
  storage_.remove("train/emu/2.jpg");
  EXPECT_EQ(list(Recheck::sample).size(), 8U);
  EXPECT_THAT(log_.lines(), ElementsAre(HasSubstr("'emu'")));
}

TEST_F(ImageManifest, SampledRecheckListsAtMostEightClasses) {
  for (int number = 100; number < 150; ++number) storage_.put(text("train/", number, "/1.jpg"), "x");
  list();
  const auto before = lists();
  list(Recheck::sample);
  EXPECT_EQ(lists(), before + 8);
}

TEST_F(ImageManifest, IsDoneWithoutWhereItCannotBeWritten) {
  write_file(folder_ / "file", "");
  const auto found = list_image_folder_once(storage_, "train", folder_ / "file");
  EXPECT_EQ(found, list_image_folder(storage_, "train"));
  EXPECT_THAT(log_.lines(), ElementsAre(HasSubstr("warning")));
}

TEST_F(ImageManifest, IsNotMadeOfAFolderThatIsRefused) {
  storage_.put("train/cat/9.webp", "x");
  EXPECT_THROW(list(), EnvironmentError);
  EXPECT_EQ(folder_.count(), 0);
}

}  // namespace
}  // namespace libtrain::data
