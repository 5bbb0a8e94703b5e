#include <libtrain/base/detail/crc32c.hpp>

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace libtrain {
namespace {

std::string random_bytes(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random() & 0xff);
  return bytes;
}

// From the definition, bit by bit.
std::uint32_t bit_by_bit(std::string_view bytes) {
  std::uint32_t remainder = 0xffffffffU;
  for (const char byte : bytes) {
    remainder ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) remainder = (remainder >> 1) ^ ((remainder & 1U) != 0 ? 0x82f63b78U : 0U);
  }
  return ~remainder;
}

// RFC 3720, appendix B.4, whose bytes are in the order of transmission.
TEST(Crc32c, GivesThePublishedValues) {
  EXPECT_EQ(detail::crc32c(""), 0x00000000U);
  EXPECT_EQ(detail::crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(detail::crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(detail::crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  std::string rising;
  for (char i = 0; i < 32; ++i) rising.push_back(i);
  EXPECT_EQ(detail::crc32c(rising), 0x46dd794eU);
  EXPECT_EQ(detail::crc32c(std::string(rising.rbegin(), rising.rend())), 0x113fdb5cU);
}

TEST(Crc32c, IsMaskedAsInTfRecords) {
  EXPECT_EQ(detail::masked_crc32c("123456789"), 0xc78ab0e5U);
}

TEST(Crc32c, TakesBytesAsWell) {
  const std::vector<std::byte> bytes(32, std::byte{0xff});
  EXPECT_EQ(detail::crc32c(bytes), 0x62a8ab43U);
}

TEST(Crc32c, TablesAgreeWithTheDefinitionAtEveryLengthAndAlignment) {
  const std::string bytes = random_bytes(80, 1);
  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (std::size_t length = 0; length + begin <= bytes.size(); ++length) {
      const auto part = std::string_view{bytes}.substr(begin, length);
      ASSERT_EQ(detail::extend_crc32c_by_tables(0, part), bit_by_bit(part)) << begin << " " << length;
    }
  }
}

TEST(Crc32c, InstructionsAgreeWithTablesAtRandomLengthsAndAlignments) {
  if (!detail::has_crc32c_instructions()) GTEST_SKIP() << "this processor has no instructions for CRC-32C";
  const std::string bytes = random_bytes(40'000, 2);
  std::mt19937 random(3);
  for (int i = 0; i < 1000; ++i) {
    const std::size_t begin = random() % 64;
    const std::size_t length = random() % (i % 2 == 0 ? std::size_t{100} : bytes.size() - begin);
    const auto part = std::string_view{bytes}.substr(begin, length);
    ASSERT_EQ(detail::extend_crc32c_by_instructions(7, part), detail::extend_crc32c_by_tables(7, part))
        << begin << " " << length;
  }
}

TEST(Crc32c, FoldingAgreesWithTablesAtEveryLengthAndAlignment) {
  if (!detail::has_crc32c_folding()) GTEST_SKIP() << "this processor does not multiply 512 bits without carries";
  const std::string bytes = random_bytes(2'700, 6);
  for (std::size_t begin = 0; begin < 3; ++begin) {
    for (std::size_t length = 0; length + begin <= bytes.size(); ++length) {
      const auto part = std::string_view{bytes}.substr(begin, length);
      ASSERT_EQ(detail::extend_crc32c_by_folding(0, part), detail::extend_crc32c_by_tables(0, part))
          << begin << " " << length;
      ASSERT_EQ(detail::extend_crc32c_by_folding(7, part), detail::extend_crc32c_by_tables(7, part));
    }
  }
}

// How far its parts are moved on depends on the length.
TEST(Crc32c, FoldingAgreesWithTablesForLongBytes) {
  if (!detail::has_crc32c_folding()) GTEST_SKIP() << "this processor does not multiply 512 bits without carries";
  const std::string bytes = random_bytes(3'000'000, 7);
  for (std::size_t length = 3'000; length <= bytes.size(); length += length / 5) {
    const auto part = std::string_view{bytes}.substr(bytes.size() - length);
    EXPECT_EQ(detail::extend_crc32c_by_folding(7, part), detail::extend_crc32c_by_tables(7, part)) << length;
  }
}

// Around the stretches that the instructions work on side by side.
TEST(Crc32c, LongBytesAgreeWithTheDefinition) {
  const std::string bytes = random_bytes(9'300, 4);
  for (const std::size_t length : {3071, 3072, 3073, 3079, 3080, 6144, 9215, 9216, 9300}) {
    const auto part = std::string_view{bytes}.substr(0, length);
    EXPECT_EQ(detail::crc32c(part), bit_by_bit(part)) << length;
  }
}

TEST(Crc32c, OfBytesInPartsIsThatOfAllOfThem) {
  const std::string bytes = random_bytes(10'000, 5);
  const std::string_view all = bytes;
  for (const std::size_t cut : {0, 1, 8, 5000, 9999, 10'000}) {
    EXPECT_EQ(detail::extend_crc32c(detail::crc32c(all.substr(0, cut)), all.substr(cut)), detail::crc32c(all)) << cut;
  }
}

TEST(Crc32c, OfTwoPartsIsCombinedFromTheirs) {
  for (const std::size_t first : {0, 1, 7, 1000}) {
    for (const std::size_t second : {0, 1, 2, 8, 255, 4096, 100001}) {
      const auto bytes = random_bytes(first + second, static_cast<std::uint32_t>(first + second));
      const std::string_view all = bytes;
      EXPECT_EQ(detail::combine_crc32c(bit_by_bit(all.substr(0, first)), bit_by_bit(all.substr(first)), second),
                bit_by_bit(all))
          << first << " and " << second;
    }
  }
}

}  // namespace
}  // namespace libtrain
