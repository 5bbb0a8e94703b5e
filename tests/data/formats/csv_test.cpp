#include <libtrain/data/formats/csv.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/data/memory_file.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr CsvOptions kWithoutHeader{.header = CsvHeader::none};

CsvFile open(const std::string& text, const CsvOptions& options = {}) {
  return CsvFile{memory_file(text, "rows.csv"), options};
}

std::string csv_error(const std::string& text, const CsvOptions& options = {}) {
  return message_of<EnvironmentError>([&] { open(text, options); });
}

TEST(Csv, ReadsFieldsByNameAndByNumber) {
  const auto file = open("name,label\nfirst,1\nsecond,2\n");
  ASSERT_EQ(file.size(), 2u);
  EXPECT_THAT(file.columns(), ElementsAre("name", "label"));
  EXPECT_EQ(file.field(1, "name"), "second");
  EXPECT_EQ(file.field(0, std::size_t{1}), "1");
  EXPECT_THAT(file.row(1), ElementsAre("second", "2"));
}

TEST(Csv, QuotesHoldSeparatorsLineBreaksAndQuotes) {
  const auto file = open("\"a,b\",\"one\ntwo\r\nthree\",\"say \"\"no\"\"\",\"\"\nx,\"\"\"\",y,z", kWithoutHeader);
  ASSERT_EQ(file.size(), 2u);
  EXPECT_THAT(file.row(0), ElementsAre("a,b", "one\ntwo\r\nthree", "say \"no\"", ""));
  EXPECT_THAT(file.row(1), ElementsAre("x", "\"", "y", "z"));
  EXPECT_EQ(file.field(0, "2"), "say \"no\"");
}

TEST(Csv, RefusesARowOfMoreThan64MiBAtOnce) {
  EXPECT_THAT(message_of<EnvironmentError>([] { CsvFile{std::make_shared<const ZeroFile>(), kWithoutHeader}; }),
              AllOf(HasSubstr("'zeros', line 1, byte offset 0"), HasSubstr("a row of more than 67108864 bytes")));
}

TEST(Csv, LinesEndWithEitherLineEndAndTheLastNeedNot) {
  for (const std::string end : {"\n", "\r\n"}) {
    const auto file = open("a,b" + end + "1,2" + end + "3,4");
    ASSERT_EQ(file.size(), 2u);
    EXPECT_THAT(file.row(1), ElementsAre("3", "4"));
    EXPECT_THAT(file.columns(), ElementsAre("a", "b"));
  }
}

TEST(Csv, QuotedFieldsStandBeforeEitherLineEnd) {
  for (const std::string end : {"\n", "\r\n"}) {
    const auto file = open("\"a\",\"b\"" + end + "\"1\",\"2\"" + end);
    ASSERT_EQ(file.size(), 1u);
    EXPECT_THAT(file.columns(), ElementsAre("a", "b"));
    EXPECT_THAT(file.row(0), ElementsAre("1", "2"));
  }
}

TEST(Csv, BlankLinesAreNoRows) {
  const auto file = open("\n\na\n\n1\n\r\n\"\"\n2\n\n");
  ASSERT_EQ(file.size(), 3u);
  EXPECT_THAT(file.row(1), ElementsAre(""));
  EXPECT_EQ(file.field(2, "a"), "2");
}

TEST(Csv, EmptyFieldsCount) {
  const auto file = open(",,\n,\"\",\n", kWithoutHeader);
  ASSERT_EQ(file.size(), 2u);
  EXPECT_THAT(file.row(1), ElementsAre("", "", ""));
}

TEST(Csv, AByteOrderMarkIsSkipped) {
  EXPECT_THAT(open("\xef\xbb\xbf\"a\",b\n").columns(), ElementsAre("a", "b"));
  EXPECT_THAT(csv_error(std::string("\xff\xfe"
                                    "a\0",
                                    4)),
              HasSubstr("UTF-16"));
  EXPECT_THAT(csv_error(std::string("\xfe\xff\0a", 4)), HasSubstr("UTF-16"));
}

TEST(Csv, SeparatorAndQuoteAreOptions) {
  const auto tabs = open("a\tb\n5\" disk\t\"x\n", {.separator = '\t', .quote = std::nullopt});
  EXPECT_THAT(tabs.row(0), ElementsAre("5\" disk", "\"x"));
  EXPECT_THAT(open("a;b\n'1;2';3\n", {.separator = ';', .quote = '\''}).row(0), ElementsAre("1;2", "3"));
  EXPECT_THROW(open("", {.separator = '"'}), UsageError);
  EXPECT_THROW(open("", {.separator = '\n'}), UsageError);
  EXPECT_THROW(open("", {.separator = '\r'}), UsageError);
  EXPECT_THROW(open("", {.quote = '\n'}), UsageError);
}

TEST(Csv, RowsLongerThanAPieceAreWhole) {
  const std::string text(3 << 20, 'x');
  const auto file = open("a,b\n\"" + text + "\n\"\"\",2\n3,4\n");
  ASSERT_EQ(file.size(), 2u);
  EXPECT_EQ(file.field(0, "a"), text + "\n\"");
  EXPECT_EQ(file.field(1, "b"), "4");
}

TEST(Csv, ErrorsNameLineAndOffset) {
  EXPECT_THAT(csv_error("a,b\n1,2\n\"x\ny\",2\n3\n"),
              AllOf(HasSubstr("'rows.csv'"), HasSubstr("line 5"), HasSubstr("byte offset 16"),
                    HasSubstr("1 fields instead of 2")));
  EXPECT_THAT(csv_error("a,b\n1,2,3\n"), AllOf(HasSubstr("line 2"), HasSubstr("3 fields instead of 2")));
  EXPECT_THAT(csv_error("a\n1\n\"x\ny\n"), AllOf(HasSubstr("line 3"), HasSubstr("not closed")));
  EXPECT_THAT(csv_error("a\nx\"y\n"), AllOf(HasSubstr("line 2"), HasSubstr("byte offset 3"), HasSubstr("quote")));
  EXPECT_THAT(csv_error("a\n\"x\"y\n"), AllOf(HasSubstr("byte offset 5"), HasSubstr("after a closing quote")));
  EXPECT_THAT(csv_error("a\n1\r2\n"), AllOf(HasSubstr("byte offset 3"), HasSubstr("carriage return")));
  EXPECT_THAT(csv_error("a\n1\r"), HasSubstr("carriage return"));
  EXPECT_THAT(csv_error(""), HasSubstr("a header"));
}

TEST(Csv, AFileWithoutHeaderMayBeEmpty) {
  EXPECT_EQ(open("", kWithoutHeader).size(), 0u);
  EXPECT_EQ(open("a,b\n").size(), 0u);
}

TEST(Csv, WrongRowsAndColumnsAreUsageErrors) {
  const auto file = open("a,b,b\n1,2,3\n");
  EXPECT_THROW(file.field(1, "a"), UsageError);
  EXPECT_THROW(file.row(1), UsageError);
  EXPECT_THROW(file.field(0, std::size_t{3}), UsageError);
  EXPECT_THAT(message_of<UsageError>([&] { file.field(0, "c"); }), AllOf(HasSubstr("'c'"), HasSubstr("a, b, b")));
  EXPECT_THAT(message_of<UsageError>([&] { file.field(0, "b"); }), HasSubstr("more than one"));
  EXPECT_EQ(file.field(0, std::size_t{2}), "3");
}

TEST(Csv, NeedsAFile) {
  EXPECT_THAT(message_of<UsageError>([] { CsvFile(nullptr); }), HasSubstr("CSV file"));
}

}  // namespace
}  // namespace libtrain::data
