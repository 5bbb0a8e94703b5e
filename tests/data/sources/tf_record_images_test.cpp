#include <libtrain/data/sources/tf_record_images.hpp>

#include <cstdint>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tests/data/formats/record_bytes.hpp>
#include <tests/data/sources/image_sets.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::all_of;
using libtrain::test::bytes_counted;
using libtrain::test::example_of;
using libtrain::test::image_of;
using libtrain::test::Labelled;
using libtrain::test::read_message;
using libtrain::test::SetFolder;
using libtrain::test::tf_record_file;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// What it does as other sources do is in image_source_test.cpp.

constexpr auto kLargest = std::numeric_limits<std::int64_t>::max();
constexpr auto kSmallest = std::numeric_limits<std::int64_t>::min();

class TfRecordImagesTest : public ::testing::Test {
 protected:
  TfRecordImages open(const TfRecordImagesOptions& options = {}) const {
    return TfRecordImages(set_.storage(), options);
  }

  // What reading the only record of a set says.
  std::string message_of_record(const std::string& record, const TfRecordImagesOptions& options = {}) const {
    set_.write("train-00000-of-00001", framed(record));
    return read_message(open(options), 0);
  }

  SetFolder set_;
};

TEST_F(TfRecordImagesTest, AddsTheOffsetToLabels) {
  set_.write("a.tfrecord", tf_record_file({{"a", 1}, {"b", 1000}}));
  EXPECT_THAT(all_of(open({.label_offset = -1})), ElementsAre(Pair("a", 0), Pair("b", 999)));
  EXPECT_THAT(all_of(open({.label_offset = 5})), ElementsAre(Pair("a", 6), Pair("b", 1005)));
}

TEST_F(TfRecordImagesTest, ComparesLabelsWithNamesOnceTheOffsetIsAdded) {
  set_.write("a.tfrecord", tf_record_file({{"a", 1}, {"b", 2}, {"c", 3}}));
  set_.write("classes.txt", "cat\ndog\n");
  const auto images = open({.label_offset = -1});
  EXPECT_EQ(image_of(images, 0), Labelled("a", 0));
  EXPECT_EQ(image_of(images, 1), Labelled("b", 1));
  EXPECT_THAT(read_message(images, 2), AllOf(HasSubstr("found 2"), HasSubstr("below 2")));
}

TEST_F(TfRecordImagesTest, ReadsTheFeaturesThatAreNamed) {
  detail::TfExample example;
  example.features["picture"] = detail::TfBytesList{"a"};
  example.features["number"] = detail::TfInt64List{7};
  example.features["image/encoded"] = detail::TfBytesList{"other"};
  set_.write("a.tfrecord", framed(serialize_tf_example(example)));
  EXPECT_THAT(all_of(open({.image_key = "picture", .label_key = "number"})), ElementsAre(Pair("a", 7)));
}

// Around the data of a record there are 12 bytes of length in front and 4 of checksum behind.
TEST_F(TfRecordImagesTest, KnowsWhereARecordBegins) {
  set_.write("data/a.tfrecord", tf_record_file({{"a", 1}, {"b", 2}}));
  const auto images = open({.folder = "data"});
  EXPECT_EQ(images.origin(0).path, set_.path() + "/data/a.tfrecord");
  EXPECT_EQ(images.origin(0).offset, 0U);
  EXPECT_EQ(images.origin(1).offset, example_of("a", 1).size() + 16);
  EXPECT_EQ(images.origin(0).bytes, example_of("a", 1).size());
}

TEST_F(TfRecordImagesTest, CountsTheBytesOfRecordsAndTheirChecksums) {
  set_.write("a.tfrecord", tf_record_file({{"a", 1}, {"b", 2}}));
  EXPECT_EQ(bytes_counted(open(), 0), 12 + example_of("a", 1).size() + 4);
}

TEST_F(TfRecordImagesTest, RefusesANegativeLabel) {
  EXPECT_THAT(message_of_record(example_of("a", -1)),
              AllOf(HasSubstr("train-00000-of-00001"), HasSubstr("record 0 at byte offset 0"),
                    HasSubstr("'image/class/label'"), HasSubstr("found -1")));
  EXPECT_THAT(message_of_record(example_of("a", 0), {.label_offset = -1}), HasSubstr("found 0"));
  EXPECT_THAT(message_of_record(example_of("a", kLargest), {.label_offset = 1}), HasSubstr(std::to_string(kLargest)));
  EXPECT_THAT(message_of_record(example_of("a", kSmallest), {.label_offset = -1}),
              HasSubstr(std::to_string(kSmallest)));
}

TEST_F(TfRecordImagesTest, RefusesARecordThatIsNoLabelledImage) {
  detail::TfExample example;
  EXPECT_THAT(message_of_record(serialize_tf_example(example)), HasSubstr("'image/class/label'"));
  example.features["image/class/label"] = detail::TfInt64List{1};
  EXPECT_THAT(message_of_record(serialize_tf_example(example)), HasSubstr("'image/encoded'"));
  example.features["image/encoded"] = detail::TfBytesList{"a", "b"};
  EXPECT_THAT(message_of_record(serialize_tf_example(example)),
              AllOf(HasSubstr("'image/encoded'"), HasSubstr("found 2")));
  example.features["image/encoded"] = detail::TfBytesList{"a"};
  example.features["image/class/label"] = detail::TfBytesList{"cat"};
  EXPECT_THAT(message_of_record(serialize_tf_example(example)), HasSubstr("'image/class/label'"));
  EXPECT_THAT(message_of_record("\x0a\x7f"), HasSubstr("train-00000-of-00001"));
}

// The last byte of an example is that of its image, as features are in the order of their names.
TEST_F(TfRecordImagesTest, RefusesADamagedRecordUnlessItsChecksumIsIgnored) {
  std::string bytes = tf_record_file({{"first", 1}, {"second", 2}});
  bytes[bytes.size() - 5] = 'e';
  set_.write("a.tfrecord", bytes);
  const auto images = open();
  EXPECT_THAT(read_message(images, 1), AllOf(HasSubstr("a.tfrecord"), HasSubstr("record 1"), HasSubstr("CRC-32C")));
  EXPECT_EQ(image_of(images, 0), Labelled("first", 1));
  EXPECT_THAT(all_of(open({.checksum = DataChecksum::ignore})), ElementsAre(Pair("first", 1), Pair("secone", 2)));
}

}  // namespace
}  // namespace libtrain::data
