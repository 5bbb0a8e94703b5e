#include <libtrain/data/formats/image_manifest.hpp>

#include <cstdint>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

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
  EXPECT_THAT(log_.lines(), ElementsAre(AllOf(HasSubstr("warning"), HasSubstr("3 classes are not the 4 folders"))));
  for (const std::string name : {"0.jpg", "1.jpg", "2.jpg"}) storage_.remove("train/cat/" + name);
  EXPECT_THAT(list().classes(), ElementsAre("bee", "dog", "emu"));
  storage_.put("train/cat/", "");
  EXPECT_THAT(message_of<EnvironmentError>([&] { list(); }), HasSubstr("found none in 'cat'"));
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
