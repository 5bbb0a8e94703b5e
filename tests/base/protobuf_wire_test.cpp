#include <libtrain/base/detail/protobuf_wire.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain {
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

TEST(ProtobufWire, BeginsAFieldWhoseContentFollows) {
  detail::WireWriter writer;
  writer.begin_bytes(9, 0x80000001U);
  EXPECT_EQ(writer.message(), bytes_of({0x4a, 0x81, 0x80, 0x80, 0x80, 0x08}));
}

TEST(ProtobufWire, WritesFixedNumbersAsLittleEndian) {
  detail::WireWriter writer;
  writer.fixed32(1, 1.5F);
  writer.fixed64(2, -2.0);
  EXPECT_EQ(writer.message(), bytes_of({0x0d, 0, 0, 0xc0, 0x3f, 0x11, 0, 0, 0, 0, 0, 0, 0, 0xc0}));
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
}  // namespace libtrain
