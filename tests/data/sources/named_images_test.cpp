#include <libtrain/data/sources/named_images.hpp>

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/data/sources/image_sets.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::all_of;
using libtrain::test::bytes_counted;
using libtrain::test::image_of;
using libtrain::test::message_of;
using libtrain::test::read_message;
using libtrain::test::SetFolder;
using libtrain::test::tar_file;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class NamedImagesTest : public ::testing::Test {
 protected:
  std::unique_ptr<const ImageSource> open(const std::vector<std::string>& names,
                                          const std::string& index_folder = {}) const {
    return open_named_images(set_.storage(), "val", names, index_folder);
  }

  std::string refusal(const std::vector<std::string>& names) const {
    return message_of<EnvironmentError>([&] { open(names); });
  }

  void write_archives() const {
    set_.write("val/val-00000-of-00002.tar", tar_file({{"3.jpg", "three"}, {"1.png", "one"}}));
    set_.write("val/val-00001-of-00002.tar", tar_file({{"more/2.jpg", "two"}, {"4.jpg", "four"}}));
  }

  SetFolder set_;
};

TEST_F(NamedImagesTest, AreFilesInTheOrderOfTheNames) {
  for (const std::string name : {"1.png", "more/2.jpg", "3.jpg"}) set_.write("val/" + name, "content of " + name);
  const auto images = open({"more/2.jpg", "1.png", "more/2.jpg"});
  EXPECT_THAT(all_of(*images), ElementsAre(Pair("content of more/2.jpg", 0), Pair("content of 1.png", 0),
                                           Pair("content of more/2.jpg", 0)));
  EXPECT_EQ(images->origin(1).path, set_.path() + "/val/1.png");
  EXPECT_THAT(images->blocks(), IsEmpty());
}

TEST_F(NamedImagesTest, AreMembersOfArchivesInTheOrderOfTheNames) {
  write_archives();
  const auto images = open({"4.jpg", "3.jpg", "more/2.jpg", "4.jpg"});
  EXPECT_THAT(all_of(*images), ElementsAre(Pair("four", 0), Pair("three", 0), Pair("two", 0), Pair("four", 0)));
  EXPECT_EQ(images->name(), set_.path() + "/val");
  EXPECT_THAT(images->blocks(), IsEmpty());
  EXPECT_THAT(images->classes(), IsEmpty());
  // A member is a header of 512 bytes and data that are filled up to a multiple of that.
  EXPECT_EQ(images->origin(0).path, set_.path() + "/val/val-00001-of-00002.tar/4.jpg");
  EXPECT_EQ(images->origin(0).offset, 512U + 512U + 512U);
  EXPECT_EQ(bytes_counted(*images, 0), 512U + 4U);
  EXPECT_THAT(message_of<UsageError>([&] { image_of(*images, 4); }), HasSubstr("4"));
  EXPECT_THAT(message_of<UsageError>([&] { images->origin(4); }), HasSubstr("4"));
}

TEST_F(NamedImagesTest, AreFoundOnceWithAFolderForIndices) {
  write_archives();
  const libtrain::test::TemporaryFolder indices;
  for (int run = 0; run < 2; ++run) {
    EXPECT_THAT(all_of(*open({"1.png"}, indices.path().string())), ElementsAre(Pair("one", 0)));
    EXPECT_EQ(indices.count(), 4);  // by each archive's name, and for its copies
  }
}

TEST_F(NamedImagesTest, ThatNoArchiveHasAreCounted) {
  write_archives();
  EXPECT_THAT(refusal({"3.jpg", "5.jpg", "1.png", "2.jpg"}),
              AllOf(HasSubstr("/val': 2 of 4 images"), HasSubstr("2 tar archives"), HasSubstr("'5.jpg'")));
}

TEST_F(NamedImagesTest, AreRefusedInTwoArchives) {
  write_archives();
  set_.write("val/val-00000-of-00001.tar", tar_file({{"5.jpg", "five"}, {"3.jpg", "another three"}}));
  EXPECT_THAT(refusal({"1.png"}),
              AllOf(HasSubstr("'3.jpg'"), HasSubstr("val-00000-of-00001.tar"), HasSubstr("val-00000-of-00002.tar")));
}

// As where a folder has a part of the set, or the archives of several: which images are read depends on their names.
TEST_F(NamedImagesTest, NeedOnlyTheArchivesThatContainThem) {
  set_.write("val/train-00001-of-00002.tar", tar_file({{"3.jpg", "three"}}));
  set_.write("val/train-0.tar", tar_file({{"1.jpg", "one"}}));
  set_.write("val/train-00002-of-00003.tar", tar_file({{"4.jpg", "four"}}));
  set_.write("val/val-0.tar", tar_file({{"5.jpg", "five"}}));
  EXPECT_THAT(all_of(*open({"5.jpg", "3.jpg"})), ElementsAre(Pair("five", 0), Pair("three", 0)));
}

TEST_F(NamedImagesTest, AreRefusedWhileTheArchivesAreReplaced) {
  write_archives();
  set_.write("val/.packing/publishing", "");
  EXPECT_THAT(refusal({"1.png"}), HasSubstr("libtrain-pack"));
}

TEST_F(NamedImagesTest, WithoutArchivesAreMissingWhenTheyAreRead) {
  set_.write("val/1.png", "one");
  for (const auto& names : {std::vector<std::string>{"1.png", "2.png"}, {"2.png", "1.png"}}) {
    const auto images = open(names);
    const std::uint64_t missing = names[0] == "2.png" ? 0 : 1;
    EXPECT_THAT(image_of(*images, 1 - missing), Pair("one", 0));
    EXPECT_THAT(read_message(*images, missing), HasSubstr("2.png"));
  }
}

TEST_F(NamedImagesTest, NeedAFolderNamesAndAStorage) {
  EXPECT_THAT(refusal({"1.png"}), HasSubstr("/val'"));
  set_.write("val/1.png", "one");
  EXPECT_THAT(refusal({}), HasSubstr("/val'"));
  EXPECT_THAT(message_of<UsageError>([] { open_named_images(nullptr, "val", {"1.png"}); }), HasSubstr("storage"));
  EXPECT_THAT(all_of(*open_named_images(set_.storage(), "", {"val/1.png"})), ElementsAre(Pair("one", 0)));
}

}  // namespace
}  // namespace libtrain::data
