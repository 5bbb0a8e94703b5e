#include <libtrain/data/image/detail/scan_decoder.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include <gtest/gtest.h>

namespace libtrain::data::detail {

namespace {

using Use = HuffmanTable::Use;

struct Group {
  std::size_t length = 0;
  std::initializer_list<std::uint8_t> symbols = {};
};

HuffmanCode code_of(std::initializer_list<Group> groups) {
  HuffmanCode code;
  std::size_t index = 0;
  for (const Group& group : groups) {
    code.counts[group.length] = static_cast<std::uint8_t>(group.symbols.size());
    for (const std::uint8_t symbol : group.symbols) code.symbols[index++] = symbol;
  }
  return code;
}

// Zeros and ones, the first one on top, followed by zeros. Spaces separate codes and numbers for the reader.
std::uint64_t bits_of(std::string_view digits) {
  std::uint64_t bits = 0;
  int place = 63;
  for (const char digit : digits) {
    if (digit != ' ') bits |= std::uint64_t{digit == '1'} << place--;
  }
  return bits;
}

// 00: end of block; 01: one bit, no zeros before; 100: two bits after one zero; 101: sixteen zeros; 1100: ten bits;
// 1101: six.
HuffmanTable coefficients() {
  HuffmanTable table;
  EXPECT_TRUE(table.build(code_of({{2, {0x00, 0x01}}, {3, {0x12, 0xF0}}, {4, {0x0A, 0x06}}}), Use::kCoefficients));
  return table;
}

TEST(Extend, TakesTheLowerHalfForNegativeNumbers) {  // T.81, table F.2
  EXPECT_EQ(extend(0, 0), 0);
  EXPECT_EQ(extend(0, 1), -1);
  EXPECT_EQ(extend(1, 1), 1);
  EXPECT_EQ(extend(0, 3), -7);
  EXPECT_EQ(extend(3, 3), -4);
  EXPECT_EQ(extend(4, 3), 4);
  EXPECT_EQ(extend(7, 3), 7);
  EXPECT_EQ(extend(0, 11), -2047);
  EXPECT_EQ(extend(2047, 11), 2047);
}

TEST(HuffmanTable, LooksUpTwoNumbersAtOnce) {
  // -1, then one zero and 3, then a code with its first bit alone.
  const HuffmanEntry entry = coefficients().entry(bits_of("01 0 100 11 1 1"));
  EXPECT_EQ(entry.bits(), 8U);
  EXPECT_EQ(entry.first_place(), 0U);
  EXPECT_EQ(entry.first_value(), -1);
  EXPECT_EQ(entry.second_place(), 2U);
  EXPECT_EQ(entry.second_value(), 3);
  EXPECT_EQ(entry.places(), 3U);
}

TEST(HuffmanTable, LooksUpANumberAloneWhereTheNextOneIsTooLong) {
  const HuffmanEntry entry = coefficients().entry(bits_of("100 10 1100 0000000001"));
  EXPECT_EQ(entry.bits(), 5U);
  EXPECT_EQ(entry.first_place(), 1U);
  EXPECT_EQ(entry.first_value(), 2);
  EXPECT_EQ(entry.second_place(), 2U);
  EXPECT_EQ(entry.second_value(), 0);
  EXPECT_EQ(entry.places(), 2U);
}

// All ten bits of a lookup, and not one more.
TEST(HuffmanTable, APairMayTakeTheWholeLookup) {
  const HuffmanEntry whole = coefficients().entry(bits_of("100 10 100 11"));
  EXPECT_EQ(whole.bits(), static_cast<unsigned int>(HuffmanTable::kLookupBits));
  EXPECT_EQ(whole.second_value(), 3);
  const HuffmanEntry longer = coefficients().entry(bits_of("101 101 100 11"));
  EXPECT_EQ(longer.bits(), 6U);
}

TEST(HuffmanTable, LooksUpTheEndOfABlockWithTheNumberBeforeIt) {
  const HuffmanEntry alone = coefficients().entry(bits_of("00 01 1"));
  EXPECT_EQ(alone.bits(), 2U) << "what follows the end of a block is another block's";
  EXPECT_EQ(alone.places(), HuffmanEntry::kEndOfBlock + 1);
  const HuffmanEntry after = coefficients().entry(bits_of("01 1 00"));
  EXPECT_EQ(after.bits(), 5U);
  EXPECT_EQ(after.first_value(), 1);
  EXPECT_EQ(after.second_value(), 0);
  EXPECT_EQ(after.places(), HuffmanEntry::kEndOfBlock + 2);
}

TEST(HuffmanTable, SixteenZerosAreANumberThatIsZero) {
  const HuffmanEntry entry = coefficients().entry(bits_of("101 01 1"));
  EXPECT_EQ(entry.bits(), 6U);
  EXPECT_EQ(entry.first_place(), 15U);
  EXPECT_EQ(entry.first_value(), 0);
  EXPECT_EQ(entry.second_place(), 16U);
  EXPECT_EQ(entry.second_value(), 1);
}

TEST(HuffmanTable, ANumberThatDoesNotFitIsIncomplete) {
  const HuffmanEntry entry = coefficients().entry(bits_of("1100 1000000000"));
  EXPECT_EQ(entry.bits(), 0U);
  EXPECT_EQ(entry.places(), HuffmanEntry::kIncomplete);
  EXPECT_EQ(entry.code_bits(), 4U);
  EXPECT_EQ(entry.run(), 0U);
  EXPECT_EQ(entry.number_bits(), 10U);
}

TEST(HuffmanTable, ANumberMayTakeTheWholeLookup) {
  const HuffmanEntry entry = coefficients().entry(bits_of("1101 100001"));
  EXPECT_EQ(entry.bits(), static_cast<unsigned int>(HuffmanTable::kLookupBits));
  EXPECT_EQ(entry.first_value(), 33);
}

TEST(HuffmanTable, AStrideTakesTheSymbolsWhoseCodesALookupShows) {
  // The last of them half.
  const HuffmanStride two = coefficients().stride(bits_of("01 0 100 11 1101 000000"));
  EXPECT_EQ(two.bits, 3U + 5U);
  EXPECT_EQ(two.places, 1U + 2U);
  // The last of them without its number.
  const HuffmanStride three = coefficients().stride(bits_of("101 101 1100 1000000000"));
  EXPECT_EQ(three.bits, 3U + 3U + 4U + 10U);
  EXPECT_EQ(three.places, 16U + 16U + 1U);
}

TEST(HuffmanTable, AStrideStopsAtTheEndOfABlock) {
  const HuffmanStride stride = coefficients().stride(bits_of("01 0 101 00 01"));
  EXPECT_EQ(stride.bits, 3U + 3U + 2U);
  EXPECT_EQ(stride.places, 1U + 16U + HuffmanEntry::kEndOfBlock + 1);
}

TEST(HuffmanTable, AStrideIsShorterThanABlock) {
  HuffmanTable table;
  ASSERT_TRUE(table.build(code_of({{1, {0xF0}}, {2, {0x00}}}), Use::kCoefficients));
  for (const std::string_view digits : {"0 0 0 0 0", "0 0 0 0 10"}) {
    const HuffmanStride stride = table.stride(bits_of(digits));
    EXPECT_EQ(stride.bits, 3U) << digits;
    EXPECT_EQ(stride.places, 3 * 16U) << digits;
  }
}

TEST(HuffmanTable, AStrideIsIncompleteWhereALookupShowsNoCode) {
  HuffmanTable table;
  ASSERT_TRUE(table.build(code_of({{1, {0x01}}, {11, {0x02}}}), Use::kCoefficients));
  const HuffmanStride stride = table.stride(bits_of("10000000000"));
  EXPECT_EQ(stride.bits, 0U);
  EXPECT_EQ(stride.places, HuffmanEntry::kIncomplete);
}

TEST(HuffmanTable, FindsCodesThatAreLongerThanALookup) {
  HuffmanTable table;
  ASSERT_TRUE(table.build(code_of({{1, {0x01}}, {11, {0x02, 0x13}}, {16, {0x24, 0x35}}}), Use::kCoefficients));
  EXPECT_EQ(table.entry(bits_of("10000000001")).code_bits(), 0U);
  EXPECT_EQ(table.next_symbol(bits_of("0")).code_bits(), 1U);
  const HuffmanEntry eleven = table.next_symbol(bits_of("10000000001"));
  EXPECT_EQ(eleven.code_bits(), 11U);
  EXPECT_EQ(eleven.run(), 1U);
  EXPECT_EQ(eleven.number_bits(), 3U);
  const HuffmanEntry sixteen = table.next_symbol(bits_of("1000000001000001"));
  EXPECT_EQ(sixteen.code_bits(), 16U);
  EXPECT_EQ(sixteen.run(), 3U);
  EXPECT_EQ(sixteen.number_bits(), 5U);
  EXPECT_EQ(table.next_symbol(bits_of("1000000001000001"), HuffmanTable::kLookupBits + 1).code_bits(), 16U);
  EXPECT_EQ(table.next_symbol(bits_of("1000000001000010")).code_bits(), 0U) << "begins no code";
}

TEST(HuffmanTable, DifferencesAreNotPaired) {
  HuffmanTable table;
  ASSERT_TRUE(table.build(code_of({{2, {0, 1, 11}}}), Use::kDifference));
  const HuffmanEntry none = table.entry(bits_of("00 01"));
  EXPECT_EQ(none.bits(), 2U);
  EXPECT_EQ(none.first_value(), 0);
  EXPECT_EQ(table.entry(bits_of("01 0 01")).first_value(), -1);
  EXPECT_EQ(table.entry(bits_of("10")).number_bits(), 11U);
}

TEST(HuffmanTable, RefusesCodesThatNoEncoderMayWrite) {
  HuffmanTable table;
  EXPECT_FALSE(table.build(code_of({{1, {0x01, 0x02, 0x03}}}), Use::kCoefficients)) << "three codes of one bit";
  EXPECT_FALSE(table.build(code_of({{1, {0x01, 0x02}}, {2, {0x03}}}), Use::kCoefficients)) << "no room behind two";
  EXPECT_FALSE(table.build(code_of({{2, {0x0B}}}), Use::kCoefficients)) << "eleven bits";
  EXPECT_TRUE(table.build(code_of({{2, {0x0B}}}), Use::kDifference));
  EXPECT_FALSE(table.build(code_of({{2, {0x0C}}}), Use::kDifference)) << "twelve bits";
  EXPECT_FALSE(table.build(code_of({{2, {0x20}}}), Use::kCoefficients)) << "two zeros and no number";
  HuffmanCode endless;
  endless.counts[15] = 200;
  endless.counts[16] = 57;
  endless.symbols.fill(0x01);
  EXPECT_FALSE(table.build(endless, Use::kCoefficients)) << "257 symbols";
}

TEST(HuffmanTable, IsBuiltAnewForAnotherCodeOrUse) {
  HuffmanTable table;
  const HuffmanCode first = code_of({{2, {0x00, 0x01}}});
  ASSERT_TRUE(table.build(first, Use::kCoefficients));
  ASSERT_TRUE(table.build(first, Use::kCoefficients));
  EXPECT_EQ(table.entry(0).places(), HuffmanEntry::kEndOfBlock + 1);
  ASSERT_TRUE(table.build(first, Use::kDifference));
  EXPECT_EQ(table.entry(0).places(), 1U);
  ASSERT_FALSE(table.build(code_of({{2, {0x0C}}}), Use::kDifference));
  EXPECT_FALSE(table.build(code_of({{2, {0x0C}}}), Use::kDifference)) << "refused before";
  ASSERT_TRUE(table.build(code_of({{2, {0x01, 0x00}}}), Use::kDifference));
  EXPECT_EQ(table.entry(0).first_value(), -1);
}

}  // namespace

}  // namespace libtrain::data::detail
