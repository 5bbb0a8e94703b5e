#include <libtrain/data/formats/detail/protobuf_wire.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/data/formats/hex_bytes.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string bytes_of(const std::vector<int>& numbers) {
  std::string bytes;
  for (const int number : numbers) bytes.push_back(static_cast<char>(number));
  return bytes;
}

std::string refusal_of(const std::vector<int>& numbers) {
  const std::string bytes = bytes_of(numbers);
  return message_of<EnvironmentError>([&] {
    detail::WireReader reader{bytes, "record 3"};
    while (reader.next()) {
    }
  });
}

// The examples of protobuf.dev, "Encoding".
TEST(ProtobufWire, ReadsTheDocumentedExamples) {
  const std::string message = bytes_of({0x08, 0x96, 0x01, 0x12, 0x07, 't', 'e', 's', 't', 'i', 'n', 'g'});
  detail::WireReader reader{message, "x"};
  const auto number = reader.next();
  ASSERT_TRUE(number);
  EXPECT_EQ(number->number, 1U);
  EXPECT_EQ(number->type, detail::WireType::varint);
  EXPECT_EQ(number->value, 150U);
  const auto words = reader.next();
  ASSERT_TRUE(words);
  EXPECT_EQ(words->number, 2U);
  EXPECT_EQ(words->type, detail::WireType::bytes);
  EXPECT_EQ(words->bytes, "testing");
  EXPECT_EQ(words->bytes.data(), message.data() + 5);
  EXPECT_FALSE(reader.next());
  EXPECT_TRUE(reader.at_end());
}

TEST(ProtobufWire, ReadsFixedNumbersAsLittleEndian) {
  const std::string message = bytes_of({0x0d, 1, 2, 3, 0x80, 0x11, 1, 0, 0, 0, 0, 0, 0, 0xff});
  detail::WireReader reader{message, "x"};
  EXPECT_EQ(reader.next()->value, 0x80030201U);
  EXPECT_EQ(reader.next()->value, 0xff00000000000001U);
  EXPECT_FALSE(reader.next());
}

TEST(ProtobufWire, ReadsPackedNumbersThroughANestedReader) {
  const std::string message = bytes_of({0x32, 6, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05});
  detail::WireReader reader{message, "x"};
  detail::WireReader packed = reader.nested(*reader.next());
  std::vector<std::uint64_t> numbers;
  while (!packed.at_end()) numbers.push_back(packed.varint());
  EXPECT_EQ(numbers, (std::vector<std::uint64_t>{3, 270, 86942}));
}

TEST(ProtobufWire, ReadsTheLargestVarintAndRefusesALargerOne) {
  std::vector<int> largest{0x08};
  largest.insert(largest.end(), 9, 0xff);
  largest.push_back(0x01);
  const std::string message = bytes_of(largest);
  detail::WireReader reader{message, "x"};
  EXPECT_EQ(reader.next()->value, std::numeric_limits<std::uint64_t>::max());

  largest.back() = 0x02;
  EXPECT_THAT(refusal_of(largest), AllOf(HasSubstr("record 3"), HasSubstr("byte 1 "), HasSubstr("at most 64 bits")));
  largest.back() = 0x81;
  largest.push_back(0x00);
  EXPECT_THAT(refusal_of(largest), HasSubstr("at most 64 bits"));
}

TEST(ProtobufWire, RefusesWhatEndsTooEarly) {
  EXPECT_THAT(refusal_of({0x08}), AllOf(HasSubstr("byte 1 "), HasSubstr("expected 1 more bytes")));
  EXPECT_THAT(refusal_of({0x08, 0x80}), HasSubstr("byte 2 "));
  EXPECT_THAT(refusal_of({0x80}), HasSubstr("byte 1 "));
  EXPECT_THAT(refusal_of({0x0d, 1, 2, 3}), AllOf(HasSubstr("expected 4 more bytes"), HasSubstr("after 3")));
  EXPECT_THAT(refusal_of({0x09, 1, 2, 3}), HasSubstr("expected 8 more bytes"));
  EXPECT_THAT(refusal_of({0x0a, 3, 'a', 'b'}), AllOf(HasSubstr("byte 2 "), HasSubstr("expected 3 more bytes")));
}

TEST(ProtobufWire, RefusesALengthBeyondAllMemory) {
  std::vector<int> bytes{0x0a};
  bytes.insert(bytes.end(), 9, 0xff);
  bytes.push_back(0x01);
  EXPECT_THAT(refusal_of(bytes), HasSubstr("expected 18446744073709551615 more bytes"));
}

TEST(ProtobufWire, RefusesGroupsAndUnknownWireTypes) {
  for (const int type : {3, 4, 6, 7}) {
    EXPECT_THAT(refusal_of({0x08 | type}), AllOf(HasSubstr("wire type 0, 1, 2 or 5"), HasSubstr("byte 0 "))) << type;
  }
}

TEST(ProtobufWire, RefusesFieldNumbersOutOfRange) {
  EXPECT_THAT(refusal_of({0x00, 0x00}), AllOf(HasSubstr("field number"), HasSubstr("found 0")));
  EXPECT_THAT(refusal_of({0x80, 0x80, 0x80, 0x80, 0x10, 0x00}), HasSubstr("found 536870912"));
}

TEST(ProtobufWire, CountsOffsetsFromTheOutermostMessage) {
  const std::string message = bytes_of({0x08, 0x00, 0x0a, 2, 0x08, 0x80});
  detail::WireReader reader{message, "x"};
  reader.next();
  detail::WireReader inner = reader.nested(*reader.next());
  EXPECT_THAT(message_of<EnvironmentError>([&] { inner.next(); }), HasSubstr("byte 6 "));
}

TEST(ProtobufWire, NestsSixteenMessagesAndNotMore) {
  std::string message;
  for (int i = 0; i < 20; ++i) {
    detail::WireWriter outer;
    outer.bytes(1, message);
    message = outer.take();
  }
  detail::WireReader reader{message, "x"};
  for (int i = 0; i < 16; ++i) reader = reader.nested(*reader.next());
  const auto field = reader.next();
  EXPECT_THAT(message_of<EnvironmentError>([&] { reader.nested(*field); }), HasSubstr("at most 16 nested"));
}

TEST(ProtobufWire, WritesTheDocumentedExamples) {
  detail::WireWriter writer;
  writer.varint(1, 150);
  writer.bytes(2, "testing");
  EXPECT_EQ(writer.message(), bytes_of({0x08, 0x96, 0x01, 0x12, 0x07, 't', 'e', 's', 't', 'i', 'n', 'g'}));
}

TEST(ProtobufWire, ReadsTheVarintsThatItWrites) {
  for (int shift = 0; shift < 64; ++shift) {
    for (const std::uint64_t less : {0, 1}) {
      const std::uint64_t number = (std::uint64_t{1} << shift) - less;
      detail::WireWriter writer;
      writer.varint(536870911, number);
      detail::WireReader reader{writer.message(), "x"};
      const auto field = reader.next();
      EXPECT_EQ(field->number, 536870911U);
      EXPECT_EQ(field->value, number);
      EXPECT_TRUE(reader.at_end());
    }
  }
}

}  // namespace
}  // namespace libtrain::data

namespace libtrain::data::detail {
namespace {

using libtrain::test::message_of;
using libtrain::test::read_file;
using libtrain::test::TemporaryFolder;
using libtrain::test::write_file;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kFormat = "fruit001";

// Field 1 is a string of 6 bytes; the checksum was computed in Python, from the definition.
std::string message() {
  return from_hex("0a06") + "cherry";
}
std::string sealed() {
  return "fruit001" + from_hex("4e6d612d") + message();
}

class Sealed : public ::testing::Test {
 protected:
  std::optional<detail::SealedMessage> read(std::uint64_t limit_bytes = 1000) const {
    return detail::SealedMessage::read(path_, kFormat, limit_bytes);
  }

  std::string refusal(const std::string& bytes) const {
    write_file(path_, bytes);
    return message_of<EnvironmentError>([&] { read(); });
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_ / "fruit";
};

TEST_F(Sealed, HasItsBytesSpeltOut) {
  detail::write_sealed_message(folder_ / "new/fruit", kFormat, message());
  EXPECT_EQ(read_file(folder_ / "new/fruit"), sealed());
}

TEST_F(Sealed, IsReadFromItsBytes) {
  write_file(path_, sealed());
  const auto found = read();
  ASSERT_TRUE(found);
  detail::WireReader reader = found->reader();
  const auto field = reader.next();
  ASSERT_TRUE(field);
  EXPECT_EQ(field->number, 1U);
  EXPECT_EQ(field->bytes, "cherry");
  EXPECT_TRUE(reader.at_end());
}

TEST_F(Sealed, IsAbsentWithoutAFile) {
  EXPECT_FALSE(read());
}

// A link to itself: whether there is a file cannot be told.
TEST_F(Sealed, ThatCannotBeLookedForIsNotAbsent) {
  std::filesystem::create_symlink(path_, path_);
  EXPECT_THAT(message_of<EnvironmentError>([&] { read(); }), HasSubstr(path_));
}

// The checksum of nothing is 0.
TEST_F(Sealed, MayHoldNothing) {
  detail::write_sealed_message(path_, kFormat, "");
  EXPECT_EQ(read_file(path_), "fruit001" + std::string(4, '\0'));
  const auto found = read();
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->reader().at_end());
}

TEST_F(Sealed, WithAnyBitFlippedIsRefused) {
  for (std::size_t place = 0; place < sealed().size(); ++place) {
    const char* const offset =
        place < 8 ? "byte offset 0: expected 'fruit001'" : "byte offset 8: expected the checksum";
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = sealed();
      damaged[place] = static_cast<char>(damaged[place] ^ (1 << bit));
      EXPECT_THAT(refusal(damaged), AllOf(HasSubstr(path_), HasSubstr(offset))) << place << " " << bit;
    }
  }
}

TEST_F(Sealed, CutShortIsRefused) {
  for (std::size_t length = 0; length < sealed().size(); ++length) {
    EXPECT_THAT(refusal(sealed().substr(0, length)), HasSubstr(path_)) << length;
  }
}

TEST_F(Sealed, LongerThanAllowedIsRefused) {
  write_file(path_, sealed());
  EXPECT_TRUE(read(20));
  EXPECT_THAT(message_of<EnvironmentError>([&] { read(19); }), AllOf(HasSubstr(path_), HasSubstr("at most 19")));
}

}  // namespace
}  // namespace libtrain::data::detail
