#include <libtrain/data/formats/tf_record.hpp>

#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/data/formats/deflated.hpp>
#include <tests/data/formats/record_bytes.hpp>
#include <tests/data/memory_file.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using libtrain::test::read_file;
using libtrain::test::TemporaryFolder;
using libtrain::test::write_file;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TfRecordFile records_in(std::string bytes, const ShardOptions& options = {},
                        DataChecksum checksum = DataChecksum::verify) {
  return TfRecordFile(memory_file(std::move(bytes), "train.tfrecord"), options, checksum);
}

std::vector<std::string> records_of(const TfRecordFile& file) {
  std::vector<std::string> records(file.size());
  for (std::size_t i = 0; i < records.size(); ++i) file.read(i, records[i]);
  return records;
}

void flip(std::string& bytes, std::size_t place) {
  bytes[place] = static_cast<char>(bytes[place] ^ 0x40);
}

TEST(TfRecord, ReadsRecordsInAnyOrder) {
  const TfRecordFile file = records_in(framed("first") + framed("") + framed("the third"));
  EXPECT_EQ(file.size(), 3U);
  EXPECT_THAT(records_of(file), ElementsAre("first", "", "the third"));
  std::string data;
  file.read(2, data);
  file.read(0, data);
  EXPECT_EQ(data, "first");
  EXPECT_EQ(file.bytes(2), 9U);
  EXPECT_EQ(file.offset(1), 21U);
  EXPECT_EQ(file.describe(1), "TFRecord file 'train.tfrecord', record 1 at byte offset 21");
  EXPECT_THAT(records_of(records_in(framed("first") + framed(""))), ElementsAre("first", ""));
}

// Its checksums were computed in Python, from the definition.
TEST(TfRecord, ReadsARecordWithItsBytesSpeltOut) {
  const std::string record = std::string("\x05\0\0\0\0\0\0\0", 8) + "\xea\xb2\x04\x3e" + "hello" + "\xbb\x1f\x1c\x19";
  EXPECT_EQ(framed("hello"), record);
  EXPECT_THAT(records_of(records_in(record)), ElementsAre("hello"));
}

TEST(TfRecord, HasNoRecordsInAnEmptyFile) {
  EXPECT_EQ(records_in("").size(), 0U);
}

TEST(TfRecord, RandomRecordsReadBackEqual) {
  std::mt19937 random(5);
  std::vector<std::string> written;
  std::string bytes;
  for (int i = 0; i < 60; ++i) {
    // Some longer than the first window of the index, which grows and shrinks over them.
    const std::size_t length = random() % (i % 20 == 0 ? 150'000U : 300U);
    written.emplace_back(length, static_cast<char>(random() & 0xff));
    bytes += framed(written.back());
  }
  EXPECT_EQ(records_of(records_in(bytes)), written);
}

TEST(TfRecord, BuildsTheIndexWithFewReads) {
  std::string bytes;
  for (int i = 0; i < 4000; ++i) bytes += framed("record " + std::to_string(i));
  const MemoryFile file(bytes);
  EXPECT_EQ(index_tf_records(file).size(), 4000U);
  EXPECT_LE(file.reads(), 2);
}

TEST(TfRecord, ReportsDamagedDataAndReadsTheOtherRecords) {
  std::string bytes = framed("first") + framed("second") + framed("third");
  flip(bytes, 21 + 12);
  const TfRecordFile file = records_in(bytes);
  std::string data;
  EXPECT_THAT(message_of<EnvironmentError>([&] { file.read(1, data); }),
              AllOf(HasSubstr("'train.tfrecord', record 1 at byte offset 21"), HasSubstr("CRC-32C")));
  file.read(2, data);
  EXPECT_EQ(data, "third");
}

TEST(TfRecord, ReadsDamagedDataWhereChecksumsAreIgnored) {
  std::string bytes = framed("first");
  bytes[12] = 'F';
  std::string data;
  records_in(bytes, {}, DataChecksum::ignore).read(0, data);
  EXPECT_EQ(data, "First");
}

TEST(TfRecord, ReportsThatADamagedLengthLosesTheRest) {
  for (const std::size_t place : {0, 7, 8, 11}) {
    std::string bytes = framed("first") + framed("second");
    flip(bytes, 21 + place);
    EXPECT_THAT(message_of<EnvironmentError>([&] { records_in(bytes); }),
                AllOf(HasSubstr("'train.tfrecord', byte offset 21"), HasSubstr("another checksum"),
                      HasSubstr("The rest of the file cannot be read")));
  }
}

TEST(TfRecord, EveryTruncationIsAnErrorButAtTheEndsOfRecords) {
  const std::string whole = framed("first") + framed("second");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    if (length == 0 || length == 21) continue;
    EXPECT_THAT(message_of<EnvironmentError>([&] { records_in(whole.substr(0, length)); }), HasSubstr("truncated"))
        << length;
  }
}

TEST(TfRecord, RefusesAHugeLengthWithARightChecksumBeforeAllocating) {
  const std::string huge(8, '\xff');
  const std::string bytes = huge + masked_checksum(huge) + std::string(100, 'x');
  EXPECT_THAT(message_of<EnvironmentError>([&] { records_in(bytes); }),
              AllOf(HasSubstr("record of 18446744073709551615 bytes"), HasSubstr("after 96")));
}

TEST(TfRecord, ReadsFilesCompressedAsAWhole) {
  const std::string bytes = framed("first") + framed(std::string(50'000, 'b'));
  for (const auto wrapping : {Wrapping::gzip, Wrapping::zlib}) {
    const TfRecordFile file = records_in(deflated(bytes, wrapping));
    EXPECT_THAT(records_of(file), ElementsAre("first", std::string(50'000, 'b')));
    EXPECT_EQ(file.name(), "train.tfrecord");
  }
}

TEST(TfRecord, RefusesACompressedFileBeyondItsLimit) {
  const std::string compressed = deflated(framed(std::string(50'000, 'b')), Wrapping::gzip);
  EXPECT_THAT(message_of<EnvironmentError>([&] { records_in(compressed, {.inflated_limit_bytes = 40'000}); }),
              AllOf(HasSubstr("train.tfrecord"), HasSubstr("at most 40000 bytes")));
}

// 0x8b1f and 0x0178 are lengths as good as any.
TEST(TfRecord, IsNotMisledByLengthsThatLookCompressed) {
  for (const std::size_t length : {0x8b1f, 0x0178, 0x9c78}) {
    EXPECT_THAT(records_of(records_in(framed(std::string(length, 'x')))), ElementsAre(std::string(length, 'x')));
  }
}

TEST(TfRecord, RefusesRecordsThatItDoesNotHave) {
  const TfRecordFile file = records_in(framed("first"));
  std::string data;
  EXPECT_THAT(message_of<UsageError>([&] { file.read(1, data); }), HasSubstr("has 1 records"));
  EXPECT_THROW(file.bytes(1), UsageError);
  EXPECT_THROW(file.offset(1), UsageError);
  EXPECT_THROW(TfRecordFile(nullptr), UsageError);
}

TEST(TfRecordWriter, WritesTheBytesMadeByHand) {
  const TemporaryFolder folder;
  const std::string large(3'000'000, 'x');
  TfRecordWriter writer(folder / "a.tfrecord");
  writer.write("first");
  writer.write("");
  writer.write(large);
  EXPECT_EQ(writer.size(), 3U);
  EXPECT_EQ(writer.bytes(), 3 * 16 + 5 + large.size());
  writer.finish();
  EXPECT_TRUE(read_file(folder / "a.tfrecord") == framed("first") + framed("") + framed(large));
}

TEST(TfRecordWriter, LeavesNothingUnlessItIsFinished) {
  const TemporaryFolder folder;
  {
    TfRecordWriter writer(folder / "a.tfrecord");
    writer.write("first");
    EXPECT_FALSE(std::filesystem::exists(folder / "a.tfrecord"));
  }
  EXPECT_EQ(folder.count(), 0);
}

TEST(TfRecordWriter, ReplacesAFileOnlyWhenItIsFinished) {
  const TemporaryFolder folder;
  write_file(folder / "a.tfrecord", "old");
  TfRecordWriter writer(folder / "a.tfrecord");
  EXPECT_EQ(read_file(folder / "a.tfrecord"), "old");
  writer.finish();
  EXPECT_EQ(read_file(folder / "a.tfrecord"), "");
  EXPECT_EQ(folder.count(), 1);
}

TEST(TfRecordWriter, RefusesToGoOnAfterTheEnd) {
  const TemporaryFolder folder;
  TfRecordWriter writer(folder / "a.tfrecord");
  writer.finish();
  EXPECT_THAT(message_of<UsageError>([&] { writer.write("x"); }), HasSubstr("a.tfrecord"));
  EXPECT_THROW(writer.finish(), UsageError);
}

TEST(TfRecordWriter, NamesAFolderThatIsNotThere) {
  const TemporaryFolder folder;
  EXPECT_THAT(message_of<EnvironmentError>([&] { TfRecordWriter writer(folder / "absent/a.tfrecord"); }),
              AllOf(HasSubstr("absent/a.tfrecord"), HasSubstr("No such file")));
}

}  // namespace
}  // namespace libtrain::data
