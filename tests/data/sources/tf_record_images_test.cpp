#include <libtrain/data/sources/tf_record_images.hpp>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/loader/stage_clock.hpp>

#include <tests/data/formats/deflated.hpp>
#include <tests/data/formats/record_bytes.hpp>
#include <tests/data/sources/set_folder.hpp>
#include <tests/data/storage/memory_storage.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

using libtrain::testing::all_of;
using libtrain::testing::example_of;
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

constexpr auto kLargest = std::numeric_limits<std::int64_t>::max();
constexpr auto kSmallest = std::numeric_limits<std::int64_t>::min();

class TfRecordImagesTest : public ::testing::Test {
 protected:
  TfRecordImages open(const TfRecordImagesOptions& options = {}) const {
    return TfRecordImages(set_.storage(), options);
  }

  // What reading the only record of a set says.
  std::string message_of_record(const std::string& record, const TfRecordImagesOptions& options = {}) const {
    set_.write_records("train-00000-of-00001", {record});
    const auto images = open(options);
    EncodedImage image;
    return message_of<EnvironmentError>([&] { images.read(0, image); });
  }

  SetFolder set_;
};

TEST_F(TfRecordImagesTest, ReadsAllFilesInTheOrderOfTheirNames) {
  set_.write_records("train-00001-of-00003", {example_of("c", 3)});
  set_.write_records("train-00000-of-00003", {example_of("a", 1), example_of("b", 2)});
  set_.write_records("train-00002-of-00003", {});
  set_.write_records("u.tfrecord", {example_of("", 0)});
  set_.write("notes.txt", "no records");
  set_.write("folder/v.tfrecord", "not right in the folder");
  const auto images = open();
  EXPECT_EQ(images.name(), set_.path());
  EXPECT_EQ(images.size(), 4U);
  EXPECT_THAT(all_of(images), ElementsAre(Pair("a", 1), Pair("b", 2), Pair("c", 3), Pair("", 0)));
  EXPECT_THAT(images.blocks(), ElementsAre(2U, 1U, 1U));
  EXPECT_THAT(images.classes(), IsEmpty());
}

TEST_F(TfRecordImagesTest, TakesOneSplitByThePrefixOfItsNames) {
  set_.write_records("data/train-00000-of-00001", {example_of("a", 1)});
  set_.write_records("data/validation-00000-of-00001", {example_of("b", 2)});
  const auto images = open({.folder = "data", .prefix = "validation-"});
  EXPECT_EQ(images.name(), set_.path() + "/data");
  EXPECT_THAT(all_of(images), ElementsAre(Pair("b", 2)));
}

TEST_F(TfRecordImagesTest, AddsTheOffsetToLabels) {
  set_.write_records("a.tfrecord", {example_of("a", 1), example_of("b", 1000)});
  EXPECT_THAT(all_of(open({.label_offset = -1})), ElementsAre(Pair("a", 0), Pair("b", 999)));
  EXPECT_THAT(all_of(open({.label_offset = 5})), ElementsAre(Pair("a", 6), Pair("b", 1005)));
}

TEST_F(TfRecordImagesTest, KnowsTheNamesOfClassesThatLieBesideTheRecords) {
  set_.write_records("data/train-00000-of-00001", {example_of("a", 1), example_of("b", 2)});
  set_.write("data/classes.txt", "cat\nsea dog\n");
  const auto images = open({.folder = "data", .label_offset = -1});
  EXPECT_THAT(images.classes(), ElementsAre("cat", "sea dog"));
  EXPECT_THAT(all_of(images), ElementsAre(Pair("a", 0), Pair("b", 1)));
}

TEST_F(TfRecordImagesTest, RefusesALabelWithoutANameWhereThereAreNames) {
  set_.write("classes.txt", "cat\ndog\n");
  EXPECT_THAT(message_of_record(example_of("a", 2)),
              AllOf(HasSubstr("train-00000-of-00001"), HasSubstr("record 0 at byte offset 0"), HasSubstr("found 2"),
                    HasSubstr("below 2"), HasSubstr(set_.path() + "/classes.txt")));
  EXPECT_THAT(message_of_record(example_of("a", 3), {.label_offset = -1}), HasSubstr("found 2"));
}

TEST_F(TfRecordImagesTest, RefusesNamesOfClassesThatAreNone) {
  set_.write_records("a.tfrecord", {example_of("a", 0)});
  set_.write("classes.txt", "cat\n\ndog\n");
  EXPECT_THAT(message_of<EnvironmentError>([&] { open(); }),
              AllOf(HasSubstr(set_.path() + "/classes.txt"), HasSubstr("byte offset 4"), HasSubstr("empty line")));
}

TEST_F(TfRecordImagesTest, ReadsTheFeaturesThatAreNamed) {
  TfExample example;
  example.features["picture"] = TfBytesList{"a"};
  example.features["number"] = TfInt64List{7};
  example.features["image/encoded"] = TfBytesList{"other"};
  set_.write_records("a.tfrecord", {serialize_tf_example(example)});
  EXPECT_THAT(all_of(open({.image_key = "picture", .label_key = "number"})), ElementsAre(Pair("a", 7)));
}

TEST_F(TfRecordImagesTest, ReadsIntoTheMemoryThatIsThere) {
  set_.write_records("a.tfrecord", {example_of("a picture", 1)});
  const auto images = open();
  EncodedImage image;
  image.bytes.assign(1000, 'x');
  const char* const before = image.bytes.data();
  images.read(0, image);
  EXPECT_EQ(image.bytes, "a picture");
  EXPECT_EQ(image.bytes.data(), before);
}

// Around the data of a record there are 12 bytes of length in front and 4 of checksum behind.
TEST_F(TfRecordImagesTest, KnowsWhereARecordBegins) {
  const std::string first = example_of("a", 1);
  set_.write_records("data/a.tfrecord", {first, example_of("b", 2)});
  const auto images = open({.folder = "data"});
  EXPECT_EQ(images.origin(0).path, set_.path() + "/data/a.tfrecord");
  EXPECT_EQ(images.origin(0).offset, 0U);
  EXPECT_EQ(images.origin(1).offset, first.size() + 16);
}

TEST_F(TfRecordImagesTest, CountsTheBytesOfRecordsAndTheirChecksums) {
  const std::string record = example_of("a", 1);
  set_.write_records("a.tfrecord", {record, example_of("b", 2)});
  const auto images = open();
  StageClock clock;
  EncodedImage image;
  images.read(0, image);
  EXPECT_EQ(clock.counts().bytes, record.size() + 4);
}

TEST_F(TfRecordImagesTest, InflatesWhatIsCompressedAndReadsItNoMore) {
  set_.write("a.tfrecord.gz", deflated(framed(example_of("a", 1)) + framed(example_of("b", 2)), Wrapping::gzip));
  const auto images = open();
  StageClock clock;
  EXPECT_THAT(all_of(images), ElementsAre(Pair("a", 1), Pair("b", 2)));
  EXPECT_EQ(clock.counts().bytes, 0U);
}

TEST_F(TfRecordImagesTest, MakesTheIndexOnce) {
  const TemporaryFolder folder;
  const auto storage = std::make_shared<MemoryStorage>();
  storage->put("a.tfrecord", framed(example_of("a", 1)) + framed(example_of("b", 2)));
  const TfRecordImagesOptions options{.index_folder = folder.path()};
  EXPECT_EQ(TfRecordImages(storage, options).size(), 2U);
  const auto before = storage->counts().bytes_read.load();
  EXPECT_EQ(TfRecordImages(storage, options).size(), 2U);
  EXPECT_EQ(storage->counts().bytes_read, before);
  storage->put("a.tfrecord", framed(example_of("c", 3)), "2");
  EXPECT_THAT(all_of(TfRecordImages(storage, options)), ElementsAre(Pair("c", 3)));
}

TEST_F(TfRecordImagesTest, TellsShardsFromTheIndicesBesideThem) {
  set_.write_records("a.tfrecord", {example_of("a", 1)});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(open({.index_folder = set_.path()}).size(), 1U);
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
  TfExample example;
  EXPECT_THAT(message_of_record(serialize_tf_example(example)), HasSubstr("'image/class/label'"));
  example.features["image/class/label"] = TfInt64List{1};
  EXPECT_THAT(message_of_record(serialize_tf_example(example)), HasSubstr("'image/encoded'"));
  example.features["image/encoded"] = TfBytesList{"a", "b"};
  EXPECT_THAT(message_of_record(serialize_tf_example(example)),
              AllOf(HasSubstr("'image/encoded'"), HasSubstr("found 2")));
  example.features["image/encoded"] = TfBytesList{"a"};
  example.features["image/class/label"] = TfBytesList{"cat"};
  EXPECT_THAT(message_of_record(serialize_tf_example(example)), HasSubstr("'image/class/label'"));
  EXPECT_THAT(message_of_record("\x0a\x7f"), HasSubstr("train-00000-of-00001"));
}

// The last byte of an example is that of its image, as features are in the order of their names.
TEST_F(TfRecordImagesTest, RefusesADamagedRecordUnlessItsChecksumIsIgnored) {
  set_.write_records("a.tfrecord", {example_of("first", 1), example_of("second", 2)});
  std::string bytes = set_.read("a.tfrecord");
  bytes[bytes.size() - 5] = 'e';
  set_.write("a.tfrecord", bytes);
  const auto images = open();
  EncodedImage image;
  EXPECT_THAT(message_of<EnvironmentError>([&] { images.read(1, image); }),
              AllOf(HasSubstr("a.tfrecord"), HasSubstr("record 1"), HasSubstr("CRC-32C")));
  images.read(0, image);
  EXPECT_EQ(image.bytes, "first");
  EXPECT_THAT(all_of(open({.checksum = DataChecksum::ignore})), ElementsAre(Pair("first", 1), Pair("secone", 2)));
}

TEST_F(TfRecordImagesTest, RefusesATruncatedFileAtOnce) {
  set_.write_records("a.tfrecord", {example_of("a", 1)});
  const std::string whole = set_.read("a.tfrecord");
  set_.write("a.tfrecord", whole.substr(0, whole.size() - 1));
  EXPECT_THAT(message_of<EnvironmentError>([&] { open(); }), AllOf(HasSubstr("a.tfrecord"), HasSubstr("truncated")));
}

TEST_F(TfRecordImagesTest, RefusesAFolderWithoutRecords) {
  EXPECT_THAT(message_of<EnvironmentError>([&] { open(); }),
              AllOf(HasSubstr(set_.path()), HasSubstr("TFRecord files")));
  set_.write_records("a.tfrecord", {});
  EXPECT_THAT(message_of<EnvironmentError>([&] { open(); }), AllOf(HasSubstr(set_.path()), HasSubstr("found none")));
  EXPECT_THAT(message_of<EnvironmentError>([&] { open({.folder = "missing"}); }), HasSubstr(set_.path() + "/missing"));
}

TEST_F(TfRecordImagesTest, RefusesAnImageBeyondTheLast) {
  set_.write_records("a.tfrecord", {example_of("a", 1)});
  const auto images = open();
  EncodedImage image;
  EXPECT_THAT(message_of<UsageError>([&] { images.read(1, image); }),
              AllOf(HasSubstr("Image 1"), HasSubstr(set_.path()), HasSubstr("1 images")));
  EXPECT_THROW(images.origin(1), UsageError);
}

TEST_F(TfRecordImagesTest, NeedsAStorage) {
  EXPECT_THROW(TfRecordImages(nullptr), UsageError);
}

TEST_F(TfRecordImagesTest, ReadsFromSeveralThreadsAtOnce) {
  std::vector<Labelled> expected;
  for (int shard = 0; shard < 3; ++shard) {
    std::vector<std::string> records;
    for (int i = 0; i < 5; ++i) {
      expected.emplace_back(std::string(static_cast<std::size_t>(1000 * i), 'x') + std::to_string(shard), i);
      records.push_back(example_of(expected.back().first, i));
    }
    set_.write_records("a.tfrecord-0000" + std::to_string(shard) + "-of-00003", records);
  }
  expect_from_threads(open(), expected);
}

}  // namespace
}  // namespace libtrain::data
