#include <libtrain/data/formats/inflate.hpp>

#include <array>
#include <limits>
#include <random>
#include <span>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/data/formats/deflated.hpp>
#include <tests/data/memory_file.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kLimit = std::uint64_t{1} << 20;

// Half of it compresses well, half of it hardly.
std::string sample_bytes(std::size_t count) {
  std::mt19937 random(17);
  std::string bytes(count, 'a');
  for (std::size_t i = count / 2; i < count; ++i) bytes[i] = static_cast<char>(random() & 0xff);
  return bytes;
}

std::string gzip(std::string_view bytes) {
  return deflated(bytes, Wrapping::gzip);
}

std::string inflated(const std::string& compressed, Compression compression, std::uint64_t limit) {
  const auto file = inflate_file(*memory_file(compressed, "shard.gz"), compression, limit);
  return read_all(*file, file->size());
}

std::string refusal(const std::string& compressed, std::uint64_t limit = kLimit) {
  return message_of<EnvironmentError>([&] { inflated(compressed, Compression::gzip, limit); });
}

// "hello\n" in one stored block, made by hand from RFC 1951 and RFC 1952.
std::string stored_hello() {
  constexpr std::array<unsigned char, 29> kBytes{0x1f, 0x8b, 8,    0,    0,    0,   0,   0,   0,   3,
                                                 1,    6,    0,    0xf9, 0xff, 'h', 'e', 'l', 'l', 'o',
                                                 '\n', 0x20, 0x30, 0x3a, 0x36, 6,   0,   0,   0};
  return {kBytes.begin(), kBytes.end()};
}

TEST(Inflate, ReadsBytesMadeByHand) {
  EXPECT_EQ(inflated(stored_hello(), Compression::gzip, kLimit), "hello\n");
}

TEST(Inflate, ReadsWhatZlibWrites) {
  for (const std::size_t count : {0, 1, 1000, 300'000}) {
    const std::string bytes = sample_bytes(count);
    EXPECT_EQ(inflated(gzip(bytes), Compression::gzip, kLimit), bytes);
    EXPECT_EQ(inflated(deflated(bytes, Wrapping::zlib), Compression::zlib, kLimit), bytes);
  }
}

TEST(Inflate, JoinsGzipMembersAndIgnoresZerosBehindThem) {
  const std::string two = gzip("first ") + gzip("second") + std::string(100, '\0');
  EXPECT_EQ(inflated(two, Compression::gzip, kLimit), "first second");
}

TEST(Inflate, RefusesMoreThanTheLimitButNotThatMuch) {
  const std::string bomb = gzip(std::string(200'000, 'x'));
  EXPECT_EQ(inflated(bomb, Compression::gzip, 200'000).size(), 200'000U);
  EXPECT_THAT(refusal(bomb, 199'999), AllOf(HasSubstr("'shard.gz'"), HasSubstr("at most 199999 bytes")));
  EXPECT_THAT(refusal(bomb, 0), HasSubstr("at most 0 bytes"));
  EXPECT_EQ(inflated(bomb, Compression::gzip, std::numeric_limits<std::uint64_t>::max()).size(), 200'000U);
}

// The content lies in pieces of 1 MiB, and a file is read in pieces, too.
TEST(Inflate, JoinsThePiecesOfALongContent) {
  const std::string bytes = sample_bytes((std::size_t{9} << 20) + 5);
  const auto file = inflate_file(*memory_file(gzip(bytes) + gzip("end") + std::string(100'000, '\0'), "x"),
                                 Compression::gzip, std::uint64_t{1} << 30);
  ASSERT_EQ(file->size(), bytes.size() + 3);
  EXPECT_TRUE(read_all(*file, file->size()) == bytes + "end");
  const std::size_t border = std::size_t{8} << 20;
  EXPECT_EQ(detail::read_range(*file, border - 3, 6), bytes.substr(border - 3, 6));
  EXPECT_EQ(detail::read_range(*file, border, 3), bytes.substr(border, 3));
}

TEST(Inflate, EveryTruncationIsAnError) {
  const std::string whole = gzip(sample_bytes(300));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THAT(refusal(whole.substr(0, length)), AllOf(HasSubstr("byte offset"), HasSubstr("truncated"))) << length;
  }
}

TEST(Inflate, RefusesDamagedBytesAndChecksums) {
  std::string damaged = stored_hello();
  damaged[16] = 'a';
  EXPECT_THAT(refusal(damaged), AllOf(HasSubstr("gzip file 'shard.gz'"), HasSubstr("incorrect data check")));
  EXPECT_THAT(refusal("PK and more"), HasSubstr("incorrect header check"));
  // RFC 1950: bit 5 of the second byte announces the checksum of a dictionary.
  const std::string with_dictionary("\x78\xbb\0\0\0\x01", 6);
  EXPECT_THAT(message_of<EnvironmentError>([&] { inflated(with_dictionary, Compression::zlib, kLimit); }),
              HasSubstr("a preset dictionary"));
}

TEST(Inflate, RefusesOtherBytesBehindTheEnd) {
  EXPECT_THAT(refusal(stored_hello() + "more"), AllOf(HasSubstr("byte offset 29"), HasSubstr("found 4 more bytes")));
  // Only gzip has files of several members.
  const std::string mixed = deflated("first", Wrapping::zlib) + stored_hello();
  EXPECT_THAT(message_of<EnvironmentError>([&] { inflated(mixed, Compression::zlib, kLimit); }),
              HasSubstr("found 29 more bytes"));
}

TEST(Inflate, RefusesToInflateWhatIsNotCompressed) {
  EXPECT_THROW(inflated("", Compression::none, kLimit), UsageError);
}

TEST(Inflate, TellsCompressionFromTheFirstBytes) {
  EXPECT_EQ(compression_of(stored_hello()), Compression::gzip);
  EXPECT_EQ(compression_of("\x78\x9c"), Compression::zlib);
  EXPECT_EQ(compression_of("\x78\x01"), Compression::zlib);
  EXPECT_EQ(compression_of("\x68\x05"), Compression::zlib);  // a window of half the size
  EXPECT_EQ(compression_of("\x88\x1c"), Compression::none);  // twice the size of the largest
  EXPECT_EQ(compression_of("\x77\x09"), Compression::none);  // method 7
  EXPECT_EQ(compression_of("\x78\x02"), Compression::none);
  EXPECT_EQ(compression_of("\x1f\x8c"), Compression::none);
  EXPECT_EQ(compression_of("\x78\x8b"), Compression::none);
  EXPECT_EQ(compression_of("ab"), Compression::none);
  EXPECT_EQ(compression_of("\x1f"), Compression::none);
  EXPECT_EQ(compression_of(""), Compression::none);
}

TEST(Inflate, MakesAFileOfTheSameName) {
  const auto file = inflate_file(*memory_file(gzip("0123456789"), "shard.gz"), Compression::gzip, kLimit);
  EXPECT_EQ(file->name(), "shard.gz");
  ASSERT_EQ(file->size(), 10U);
  std::string part(3, '\0');
  file->read_at(7, std::as_writable_bytes(std::span{part}));
  EXPECT_EQ(part, "789");
  EXPECT_THAT(message_of<EnvironmentError>([&] { file->read_at(8, std::as_writable_bytes(std::span{part})); }),
              AllOf(HasSubstr("'shard.gz'"), HasSubstr("byte offset 8"), HasSubstr("expected 3 more bytes")));
}

}  // namespace
}  // namespace libtrain::data
