#include <libtrain/data/formats/tf_record_writer.hpp>

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/data/formats/record_bytes.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using libtrain::test::read_file;
using libtrain::test::TemporaryFolder;
using libtrain::test::write_file;
using ::testing::AllOf;
using ::testing::HasSubstr;

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
