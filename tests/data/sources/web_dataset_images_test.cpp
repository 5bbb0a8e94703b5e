#include <libtrain/data/sources/web_dataset_images.hpp>

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/data/formats/deflated.hpp>
#include <tests/data/sources/image_sets.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::all_of;
using libtrain::test::bytes_counted;
using libtrain::test::Members;
using libtrain::test::message_of;
using libtrain::test::read_message;
using libtrain::test::SetFolder;
using libtrain::test::tar_file;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// What it does as other sources do is in image_source_test.cpp.

class WebDatasetImagesTest : public ::testing::Test {
 protected:
  WebDatasetImages open(const WebDatasetImagesOptions& options = {}) const {
    return WebDatasetImages(set_.storage(), options);
  }

  // What reading the first sample of these members says.
  std::string message_of_sample(const Members& members) const {
    set_.write("a.tar", tar_file(members));
    return read_message(open(), 0);
  }

  std::string message_of_label(const std::string& label) const {
    return message_of_sample({{"17.jpg", "x"}, {"17.cls", label}});
  }

  SetFolder set_;
};

TEST_F(WebDatasetImagesTest, ReadsSamplesWhoseMembersAreInAnyOrder) {
  const std::string archive = tar_file({{"1.jpg", "a"}, {"1.cls", "1"}, {"2.cls", "20"}, {"2.png", "b"}});
  set_.write("a.tar", archive);
  set_.write("b.tgz", deflated(archive, Wrapping::gzip));
  EXPECT_THAT(all_of(open()), ElementsAre(Pair("a", 1), Pair("b", 20), Pair("a", 1), Pair("b", 20)));
}

TEST_F(WebDatasetImagesTest, TakesTheFirstExtensionThatASampleHas) {
  set_.write("a.tar",
             tar_file({{"1.PNG", "p"}, {"1.mask.png", "m"}, {"1.JPEG", "j"}, {"1.cls", "1"}, {"1.Class", "5"}}));
  EXPECT_THAT(all_of(open()), ElementsAre(Pair("j", 1)));
  EXPECT_THAT(all_of(open({.image_extensions = {"bmp", "Png", "jpeg"}})), ElementsAre(Pair("p", 1)));
  EXPECT_THAT(all_of(open({.image_extensions = {"mask.PNG"}, .label_extension = "CLASS"})), ElementsAre(Pair("m", 5)));
}

TEST_F(WebDatasetImagesTest, AllowsWhiteSpaceAroundALabel) {
  set_.write("a.tar", tar_file({{"1.jpg", ""}, {"1.cls", "7\n"}, {"2.jpg", ""}, {"2.cls", " \t 007 \r\n"}}));
  EXPECT_THAT(all_of(open()), ElementsAre(Pair("", 7), Pair("", 7)));
}

TEST_F(WebDatasetImagesTest, ReadsTheLargestLabel) {
  set_.write("a.tar", tar_file({{"1.jpg", ""}, {"1.cls", "9223372036854775807"}}));
  EXPECT_THAT(all_of(open()), ElementsAre(Pair("", 9223372036854775807)));
}

// A member is a header of 512 bytes and data that are filled up to a multiple of that.
TEST_F(WebDatasetImagesTest, KnowsWhereAnImageLies) {
  set_.write("data/a.tar",
             tar_file({{"1.jpg", std::string(600, 'x')}, {"1.cls", "1"}, {"2.cls", "2"}, {"2.jpg", "x"}}));
  const auto images = open({.folder = "data"});
  EXPECT_EQ(images.origin(0).path, set_.path() + "/data/a.tar");
  EXPECT_EQ(images.origin(0).offset, 512U);
  EXPECT_EQ(images.origin(0).bytes, 600U);
  EXPECT_EQ(images.origin(1).offset, 512U + 1024U + 2 * 1024U + 512U);
}

// They are read at once, with the rest of the image's last block and the label's header.
TEST_F(WebDatasetImagesTest, CountsTheBytesOfImagesAndLabelsAndBetweenThem) {
  set_.write("a.tar", tar_file({{"1.jpg", "a picture"}, {"1.cls", "12"}, {"2.jpg", "x"}, {"2.cls", "1"}}));
  EXPECT_EQ(bytes_counted(open(), 0), 512U + 512U + 512U + 2U);
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
  EXPECT_THAT(message_of_label(std::string("\0\x1b[7\xff", 5)), HasSubstr("found '\\x00\\x1b[7\xff'"));
  EXPECT_THAT(message_of_label(" \n"), HasSubstr("found ' "));
}

TEST_F(WebDatasetImagesTest, RefusesALabelTooLongForANumber) {
  EXPECT_THAT(message_of_label(std::string(100, ' ') + "7"), AllOf(HasSubstr("'17.cls'"), HasSubstr("found 101")));
  set_.write("a.tar", tar_file({{"1.jpg", ""}, {"1.cls", std::string(99, ' ') + "7"}}));
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

TEST_F(WebDatasetImagesTest, RefusesArchivesOfOtherFiles) {
  set_.write("a.tar", tar_file({{"README", "x"}}));
  EXPECT_THAT(message_of<EnvironmentError>([&] { open(); }), AllOf(HasSubstr(set_.path()), HasSubstr("found none")));
}

TEST_F(WebDatasetImagesTest, RefusesOptionsWithoutAnExtensionOfImages) {
  EXPECT_THAT(message_of<UsageError>([&] { open({.image_extensions = {}}); }), HasSubstr("image_extensions"));
}

}  // namespace
}  // namespace libtrain::data
