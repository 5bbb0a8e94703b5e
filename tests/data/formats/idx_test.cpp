#include <libtrain/data/formats/idx.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

namespace libtrain::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Bytes = std::vector<unsigned char>;

class Idx : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "libtrain_idx_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string write(const Bytes& bytes) const {
    const auto path = directory_ / "file";
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return path.string();
  }

  static std::string message(const std::string& path) {
    try {
      read_idx(path);
    } catch (const EnvironmentError& error) {
      return error.what();
    }
    return "no EnvironmentError";
  }

  std::string message_for(const Bytes& bytes) const { return message(write(bytes)); }

  std::filesystem::path directory_;
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

TEST_F(Idx, NamesAMissingFileOrDirectory) {
  EXPECT_THAT(message((directory_ / "absent").string()), AllOf(HasSubstr("absent"), HasSubstr("No such file")));
  EXPECT_THAT(message((directory_ / "nowhere" / "file").string()), HasSubstr("nowhere"));
  EXPECT_THAT(message(directory_.string()), HasSubstr("expected a regular file"));
}

TEST_F(Idx, RefusesAWrongMagicNumber) {
  EXPECT_THAT(message_for({'P', 'K', 3, 4, 0, 0, 0, 0}), AllOf(HasSubstr("offset 0"), HasSubstr("0x504b")));
  EXPECT_THAT(message_for({0x1f, 0x8b, 8, 0}), HasSubstr("gzip"));
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
