#include <libtrain/data/formats/idx.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using libtrain::test::TemporaryFolder;
using libtrain::test::write_file;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Bytes = std::vector<unsigned char>;

class Idx : public ::testing::Test {
 protected:
  std::string write(const Bytes& bytes) const {
    const std::string path = folder_ / "file";
    write_file(path, std::string(bytes.begin(), bytes.end()));
    return path;
  }

  static std::string message(const std::string& path) {
    return message_of<EnvironmentError>([&] { read_idx(path); });
  }

  std::string message_for(const Bytes& bytes) const { return message(write(bytes)); }

  const TemporaryFolder folder_;
};

TEST_F(Idx, ReadsShapeAndBytes) {
  const IdxFile file = read_idx(write({0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 10, 11, 12, 13, 14, 255}));
  EXPECT_EQ(file.shape, (std::vector<std::uint32_t>{2, 3}));
  EXPECT_EQ(file.bytes, (std::vector<std::uint8_t>{10, 11, 12, 13, 14, 255}));
}

TEST_F(Idx, ReadsDimensionsAsBigEndian) {
  Bytes bytes{0, 0, 8, 1, 0, 0, 1, 2};
  bytes.resize(8 + 258);
  EXPECT_EQ(read_idx(write(bytes)).shape, (std::vector<std::uint32_t>{258}));
}

TEST_F(Idx, ReadsAShapeThatHoldsNothing) {
  const IdxFile file = read_idx(write({0, 0, 8, 2, 1, 2, 3, 4, 0, 0, 0, 0}));
  EXPECT_EQ(file.shape, (std::vector<std::uint32_t>{0x01020304, 0}));
  EXPECT_TRUE(file.bytes.empty());
}

TEST_F(Idx, NamesAMissingFileOrDirectory) {
  EXPECT_THAT(message(folder_ / "absent"), AllOf(HasSubstr("absent"), HasSubstr("No such file")));
  EXPECT_THAT(message(folder_ / "nowhere/file"), HasSubstr("nowhere"));
  EXPECT_THAT(message(folder_.path()), HasSubstr("expected a regular file"));
}

TEST_F(Idx, RefusesAWrongMagicNumber) {
  EXPECT_THAT(message_for({'P', 'K', 3, 4, 0, 0, 0, 0}), AllOf(HasSubstr("offset 0"), HasSubstr("0x504b")));
  EXPECT_THAT(message_for({0, 1, 8, 1, 0, 0, 0, 0}), AllOf(HasSubstr("offset 0"), HasSubstr("0x0001")));
  EXPECT_THAT(message_for({1, 0, 8, 1, 0, 0, 0, 0}), AllOf(HasSubstr("offset 0"), HasSubstr("0x0100")));
  EXPECT_THAT(message_for({0x1f, 0x8b, 8, 0}), HasSubstr("gzip"));
  EXPECT_THAT(message_for({0x1f, 0, 8, 0}), HasSubstr("found 0x1f00"));
  EXPECT_THAT(message_for({0, 0x8b, 8, 0}), HasSubstr("found 0x008b"));
  EXPECT_THAT(message_for({0, 0, 0x0d, 1, 0, 0, 0, 0}),
              AllOf(HasSubstr("offset 2"), HasSubstr("0x08 (unsigned byte)"), HasSubstr("found 0x0d")));
  EXPECT_THAT(message_for({0, 0, 8, 0}), AllOf(HasSubstr("offset 3"), HasSubstr("1 to 4"), HasSubstr("found 0")));
  EXPECT_THAT(message_for({0, 0, 8, 5}), AllOf(HasSubstr("offset 3"), HasSubstr("found 5")));
}

TEST_F(Idx, RefusesATruncatedHeader) {
  EXPECT_THAT(message_for({}), HasSubstr("offset 0"));
  EXPECT_THAT(message_for({0, 0, 8}), HasSubstr("offset 3"));
  EXPECT_THAT(message_for({0, 0, 8, 3, 0, 0, 0, 1, 0}), AllOf(HasSubstr("offset 9"), HasSubstr("header of 16 bytes")));
}

TEST_F(Idx, RefusesTruncatedData) {
  EXPECT_THAT(
      message_for({0, 0, 8, 1, 0, 0, 0, 5, 1, 2, 3}),
      AllOf(HasSubstr("offset 11"), HasSubstr("expected 5 bytes"), HasSubstr("found 3"), HasSubstr("truncated")));
}

TEST_F(Idx, RefusesTrailingBytes) {
  EXPECT_THAT(
      message_for({0, 0, 8, 1, 0, 0, 0, 2, 1, 2, 3}),
      AllOf(HasSubstr("offset 10"), HasSubstr("expected 2 bytes"), HasSubstr("found 3"), HasSubstr("trailing")));
}

TEST_F(Idx, RefusesAbsurdDimensionsBeforeAllocating) {
  EXPECT_THAT(message_for({0, 0, 8, 1, 255, 255, 255, 255, 1}), HasSubstr("expected 4294967295 bytes"));
  Bytes four{0, 0, 8, 4};
  four.resize(20, 255);
  EXPECT_THAT(message_for(four), AllOf(HasSubstr("64 bits"), HasSubstr("4294967295 x 4294967295")));
}

TEST_F(Idx, EveryTruncationOfAFileIsAnError) {
  const Bytes whole{0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3, 4};
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const Bytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_THAT(message_for(part), HasSubstr("byte offset")) << length;
  }
}

}  // namespace
}  // namespace libtrain::data
