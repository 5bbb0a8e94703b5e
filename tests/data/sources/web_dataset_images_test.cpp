#include <libtrain/data/sources/web_dataset_images.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/loader/stage_clock.hpp>

#include <tests/data/formats/deflated.hpp>
#include <tests/data/formats/tar_bytes.hpp>
#include <tests/data/sources/set_folder.hpp>
#include <tests/data/storage/memory_storage.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

using libtrain::testing::all_of;
using libtrain::testing::expect_from_threads;
using libtrain::testing::Labelled;
using libtrain::testing::MemoryStorage;
using libtrain::testing::message_of;
using libtrain::testing::SetFolder;
using libtrain::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class WebDatasetImagesTest : public ::testing::Test {
 protected:
  WebDatasetImages open(const WebDatasetImagesOptions& options = {}) const {
    return WebDatasetImages(set_.storage(), options);
  }

  // What reading the first sample of these members says.
  std::string message_of_sample(const std::vector<std::pair<std::string, std::string>>& members) const {
    set_.write_tar("a.tar", members);
    const auto images = open();
    EncodedImage image;
    return message_of<EnvironmentError>([&] { images.read(0, image); });
  }

  std::string message_of_label(const std::string& label) const {
    return message_of_sample({{"17.jpg", "x"}, {"17.cls", label}});
  }

  SetFolder set_;
};

TEST_F(WebDatasetImagesTest, ReadsAllArchivesInTheOrderOfTheirNames) {
  set_.write_tar("train-1.tar", {{"1.jpg", "c"}, {"1.cls", "3"}});
  set_.write_tar("train-0.tar", {{"1.jpg", "a"}, {"1.cls", "1"}, {"2.cls", "20"}, {"2.jpg", "b"}});
  set_.write_tar("train-2.tar", {});
  set_.write("train-3.tgz", deflated(tar_member({.name = "9.png", .data = "d"}) +
                                         tar_member({.name = "9.cls", .data = "0"}) + tar_end(),
                                     Wrapping::gzip));
  set_.write("notes.txt", "no archive");
  set_.write("folder/train-4.tar", "not right in the folder");
  const auto images = open();
  EXPECT_EQ(images.name(), set_.path());
  EXPECT_EQ(images.size(), 4U);
  EXPECT_THAT(all_of(images), ElementsAre(Pair("a", 1), Pair("b", 20), Pair("c", 3), Pair("d", 0)));
  EXPECT_THAT(images.blocks(), ElementsAre(2U, 1U, 1U));
  EXPECT_THAT(images.classes(), IsEmpty());
}

TEST_F(WebDatasetImagesTest, TakesOneSplitByThePrefixOfItsNames) {
  set_.write_tar("data/train-0.tar", {{"1.jpg", "a"}, {"1.cls", "1"}});
  set_.write_tar("data/validation-0.tar", {{"1.jpg", "b"}, {"1.cls", "2"}});
  EXPECT_THAT(all_of(open({.folder = "data", .prefix = "validation"})), ElementsAre(Pair("b", 2)));
}

TEST_F(WebDatasetImagesTest, TakesTheFirstExtensionThatASampleHas) {
  set_.write_tar("a.tar", {{"1.PNG", "p"}, {"1.mask.png", "m"}, {"1.JPEG", "j"}, {"1.cls", "1"}, {"1.Class", "5"}});
  EXPECT_THAT(all_of(open()), ElementsAre(Pair("j", 1)));
  EXPECT_THAT(all_of(open({.image_extensions = {"bmp", "Png", "jpeg"}})), ElementsAre(Pair("p", 1)));
  EXPECT_THAT(all_of(open({.image_extensions = {"mask.PNG"}, .label_extension = "CLASS"})), ElementsAre(Pair("m", 5)));
}

TEST_F(WebDatasetImagesTest, AllowsWhiteSpaceAroundALabel) {
  set_.write_tar("a.tar", {{"1.jpg", ""}, {"1.cls", "7\n"}, {"2.jpg", ""}, {"2.cls", " \t 007 \r\n"}});
  EXPECT_THAT(all_of(open()), ElementsAre(Pair("", 7), Pair("", 7)));
}

TEST_F(WebDatasetImagesTest, KnowsTheNamesOfClassesThatLieBesideTheArchives) {
  set_.write_tar("data/a.tar", {{"1.jpg", "a"}, {"1.cls", "0"}, {"2.jpg", "b"}, {"2.cls", "1"}});
  set_.write("data/classes.txt", "cat\nsea dog\n");
  const auto images = open({.folder = "data"});
  EXPECT_THAT(images.classes(), ElementsAre("cat", "sea dog"));
  EXPECT_THAT(all_of(images), ElementsAre(Pair("a", 0), Pair("b", 1)));
}

TEST_F(WebDatasetImagesTest, RefusesALabelWithoutANameWhereThereAreNames) {
  set_.write("classes.txt", "cat\ndog\n");
  EXPECT_THAT(message_of_label("2"), AllOf(HasSubstr("a.tar"), HasSubstr("'17.cls' at byte offset 1536"),
                                           HasSubstr("found 2"), HasSubstr(set_.path() + "/classes.txt")));
}

TEST_F(WebDatasetImagesTest, ReadsTheLargestLabel) {
  set_.write_tar("a.tar", {{"1.jpg", ""}, {"1.cls", "9223372036854775807"}});
  EXPECT_THAT(all_of(open()), ElementsAre(Pair("", 9223372036854775807)));
}

TEST_F(WebDatasetImagesTest, ReadsIntoTheMemoryThatIsThere) {
  set_.write_tar("a.tar", {{"1.jpg", "a picture"}, {"1.cls", "1"}});
  const auto images = open();
  EncodedImage image;
  image.bytes.assign(1000, 'x');
  const char* const before = image.bytes.data();
  images.read(0, image);
  EXPECT_EQ(image.bytes, "a picture");
  EXPECT_EQ(image.bytes.data(), before);
}

// A member is a header of 512 bytes and data that are filled up to a multiple of that.
TEST_F(WebDatasetImagesTest, KnowsWhereAnImageLies) {
  set_.write_tar("data/a.tar", {{"1.jpg", std::string(600, 'x')}, {"1.cls", "1"}, {"2.cls", "2"}, {"2.jpg", "x"}});
  const auto images = open({.folder = "data"});
  EXPECT_EQ(images.origin(0).path, set_.path() + "/data/a.tar");
  EXPECT_EQ(images.origin(0).offset, 512U);
  EXPECT_EQ(images.origin(1).offset, 512U + 1024U + 2 * 1024U + 512U);
}

TEST_F(WebDatasetImagesTest, CountsTheBytesOfImagesAndLabels) {
  set_.write_tar("a.tar", {{"1.jpg", "a picture"}, {"1.cls", "12"}, {"2.jpg", "x"}, {"2.cls", "1"}});
  const auto images = open();
  StageClock clock;
  EncodedImage image;
  images.read(0, image);
  EXPECT_EQ(clock.counts().bytes, 9U + 2U);
}

TEST_F(WebDatasetImagesTest, MakesTheIndexOnce) {
  const TemporaryFolder folder;
  const auto storage = std::make_shared<MemoryStorage>();
  const auto sample = [](const std::string& label) {
    return tar_member({.name = "1.jpg", .data = "x"}) + tar_member({.name = "1.cls", .data = label}) + tar_end();
  };
  storage->put("a.tar", sample("1"));
  const WebDatasetImagesOptions options{.index_folder = folder.path()};
  EXPECT_EQ(WebDatasetImages(storage, options).size(), 1U);
  const auto before = storage->counts().bytes_read.load();
  EXPECT_EQ(WebDatasetImages(storage, options).size(), 1U);
  EXPECT_EQ(storage->counts().bytes_read, before);
  storage->put("a.tar", sample("2"), "2");
  EXPECT_THAT(all_of(WebDatasetImages(storage, options)), ElementsAre(Pair("x", 2)));
}

TEST_F(WebDatasetImagesTest, RefusesALabelThatIsNoNumberOfAClass) {
  const std::string wrong[] = {"",   "x",    "7x",  "0x7", "1 2", "1.5", "-1",
                               "+3", "-007", "1e2", "7,",  "--1", "+ 3", "9223372036854775808"};
  for (const auto& label : wrong) {
    EXPECT_THAT(message_of_label(label), AllOf(HasSubstr("a.tar"), HasSubstr("'17.cls' at byte offset 1536"),
                                               HasSubstr("found '" + label + "'")));
  }
}

TEST_F(WebDatasetImagesTest, WritesMessagesThatCanBePrinted) {
  EXPECT_THAT(message_of_label(std::string("\0\x1b[7\xff", 5)), HasSubstr("found '??[7?'"));
  EXPECT_THAT(message_of_label(" \n"), HasSubstr("found ' ?'"));
}

TEST_F(WebDatasetImagesTest, RefusesALabelTooLongForANumber) {
  EXPECT_THAT(message_of_label(std::string(100, ' ') + "7"), AllOf(HasSubstr("'17.cls'"), HasSubstr("found 101")));
  set_.write_tar("a.tar", {{"1.jpg", ""}, {"1.cls", std::string(99, ' ') + "7"}});
  EXPECT_THAT(all_of(open()), ElementsAre(Pair("", 7)));
}

TEST_F(WebDatasetImagesTest, NamesASampleThatLacksAMember) {
  EXPECT_THAT(message_of_sample({{"17.webp", "x"}, {"17.cls", "1"}}),
              AllOf(HasSubstr("a.tar"), HasSubstr("sample '17'"), HasSubstr("'jpg' or 'jpeg' or 'png'"),
                    HasSubstr("found 'webp', 'cls'")));
  EXPECT_EQ(open().origin(0).offset, 512U);
  EXPECT_THAT(message_of_sample({{"17.jpg", "x"}, {"17.json", "1"}}),
              AllOf(HasSubstr("sample '17'"), HasSubstr("extension 'cls'"), HasSubstr("found 'jpg', 'json'")));
}

TEST_F(WebDatasetImagesTest, RefusesADamagedArchiveAtOnce) {
  set_.write_tar("a.tar", {{"1.jpg", "x"}, {"1.cls", "1"}});
  set_.write("a.tar", set_.read("a.tar").substr(0, 1024));
  EXPECT_THAT(message_of<EnvironmentError>([&] { open(); }), AllOf(HasSubstr("a.tar"), HasSubstr("truncated")));
}

TEST_F(WebDatasetImagesTest, RefusesAFolderWithoutSamples) {
  EXPECT_THAT(message_of<EnvironmentError>([&] { open(); }), AllOf(HasSubstr(set_.path()), HasSubstr("tar archives")));
  set_.write_tar("a.tar", {{"README", "x"}});
  EXPECT_THAT(message_of<EnvironmentError>([&] { open(); }), AllOf(HasSubstr(set_.path()), HasSubstr("found none")));
}

TEST_F(WebDatasetImagesTest, RefusesOptionsWithoutAnExtensionOfImages) {
  EXPECT_THAT(message_of<UsageError>([&] { open({.image_extensions = {}}); }), HasSubstr("image_extensions"));
}

TEST_F(WebDatasetImagesTest, RefusesAnImageBeyondTheLast) {
  set_.write_tar("a.tar", {{"1.jpg", "x"}, {"1.cls", "1"}});
  const auto images = open();
  EncodedImage image;
  EXPECT_THAT(message_of<UsageError>([&] { images.read(1, image); }),
              AllOf(HasSubstr("Image 1"), HasSubstr(set_.path())));
  EXPECT_THROW(images.origin(1), UsageError);
}

TEST_F(WebDatasetImagesTest, NeedsAStorage) {
  EXPECT_THROW(WebDatasetImages(nullptr), UsageError);
}

TEST_F(WebDatasetImagesTest, ReadsFromSeveralThreadsAtOnce) {
  std::vector<Labelled> expected;
  for (int shard = 0; shard < 3; ++shard) {
    std::vector<std::pair<std::string, std::string>> members;
    for (int i = 0; i < 5; ++i) {
      const std::string number = std::to_string(i);
      expected.emplace_back(std::string(static_cast<std::size_t>(1000 * i), 'x') + std::to_string(shard), i);
      members.emplace_back(number + ".jpg", expected.back().first);
      members.emplace_back(number + ".cls", number);
    }
    set_.write_tar("a-" + std::to_string(shard) + ".tar", members);
  }
  expect_from_threads(open(), expected);
}

}  // namespace
}  // namespace libtrain::data
