#include <libtrain/data/formats/json_lines.hpp>

#include <cstdint>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/formats/detail/json.hpp>
#include <tests/data/memory_file.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

JsonLines open_lines(const std::string& text) {
  return JsonLines{memory_file(text, "rows.jsonl")};
}

TEST(JsonLines, ReadsStringsAndNumbersByName) {
  const auto file =
      open_lines("{\"text\": \"caf\\u00e9 \\\"x\\\"\", \"label\": 3}\n{\"label\": -1.5e2, \"text\": \"\"}\n");
  ASSERT_EQ(file.size(), 2u);
  EXPECT_EQ(file.field(0, "text"), "caf\xc3\xa9 \"x\"");
  EXPECT_EQ(file.field(1, "text"), "");
  EXPECT_EQ(file.integer(0, "label"), 3);
  EXPECT_EQ(file.number(0, "label"), 3);
  EXPECT_EQ(file.number(1, "label"), -150);
}

TEST(JsonLines, NumbersAndTruthsAreTextToo) {
  const auto file = open_lines(R"({"a": 0.10 , "b": true, "c": false, "d": 12})");
  EXPECT_EQ(file.field(0, "a"), "0.10");
  EXPECT_EQ(file.field(0, "b"), "true");
  EXPECT_EQ(file.field(0, "c"), "false");
  EXPECT_EQ(file.field(0, "d"), "12");
}

TEST(JsonLines, BlankLinesAreNoRows) {
  const auto file = open_lines("\n \t\r\n{\"a\": 1}\r\n\n  {\"a\": 2}");
  ASSERT_EQ(file.size(), 2u);
  EXPECT_EQ(file.integer(1, "a"), 2);
  EXPECT_EQ(file.line(0), "{\"a\": 1}");
  EXPECT_EQ(open_lines("").size(), 0u);
  EXPECT_EQ(open_lines(" \n\n").size(), 0u);
}

TEST(JsonLines, LongLinesAreWhole) {
  const std::string text(3 << 20, 'y');
  const auto file = open_lines("{\"t\": \"" + text + "\"}\n{\"t\": \"z\"}\n");
  ASSERT_EQ(file.size(), 2u);
  EXPECT_EQ(file.field(0, "t"), text);
  EXPECT_EQ(file.field(1, "t"), "z");
}

TEST(JsonLines, NestedValuesAreSkipped) {
  const auto file = open_lines(R"({"x": {"a": [1, {"a": 2}]}, "\u0061": 7})");
  EXPECT_EQ(file.integer(0, "a"), 7);
}

TEST(JsonLines, OfTheSameKeyTwiceTheLastCounts) {
  EXPECT_EQ(open_lines(R"({"a": 1, "b": 3, "a": "2"})").field(0, "a"), "2");
}

// Files are read a megabyte at a time.
TEST(JsonLines, ErrorsNameTheLineOnBothSidesOfAMegabyte) {
  const auto file = open_lines("1\n" + std::string(1 << 20, ' ') + "\n{}\n2\n\n");
  ASSERT_EQ(file.size(), 3u);
  const auto message = [&](std::uint64_t row) { return message_of<EnvironmentError>([&] { file.field(row, "a"); }); };
  EXPECT_THAT(message(0), AllOf(HasSubstr("line 1,"), HasSubstr("byte offset 0:")));
  EXPECT_THAT(message(2), AllOf(HasSubstr("line 4,"), HasSubstr("byte offset 1048582:")));
}

TEST(JsonLines, ErrorsNameLineAndOffset) {
  const auto message = [](const std::string& row) {
    return message_of<EnvironmentError>([&] { open_lines("{}\n\n" + row + "\n").field(1, "a"); });
  };
  EXPECT_THAT(message(R"({"b": 1})"),
              AllOf(HasSubstr("'rows.jsonl'"), HasSubstr("line 3"), HasSubstr("byte offset 4"), HasSubstr("'a'")));
  EXPECT_THAT(message(R"({"a": [1]})"), AllOf(HasSubstr("byte offset 10"), HasSubstr("a string, a number")));
  EXPECT_THAT(message(R"({"a": null})"), HasSubstr("a string, a number"));
  EXPECT_THAT(message(R"({"a": 01})"), HasSubstr("'a'"));
  EXPECT_THAT(message(R"({"a": 1)"), HasSubstr("ends on the line"));
  EXPECT_THAT(message(R"({"a": 1 "b": 2})"), HasSubstr("with commas between"));
  EXPECT_THAT(message(R"({"a": 1} {"a": 2})"), AllOf(HasSubstr("byte offset 13"), HasSubstr("nothing after")));
  EXPECT_THAT(message(R"(["a"])"), HasSubstr("an object"));
  EXPECT_THAT(message("5"), HasSubstr("an object"));
  EXPECT_THAT(message("{\"a\": \"\xff\"}"), HasSubstr("UTF-8"));
  EXPECT_THAT(message("{\"a\": \"x}"), HasSubstr("closed"));
  EXPECT_THAT(message(R"({"a": "\q"})"), HasSubstr("a string"));
}

TEST(JsonLines, WrongTypesAndRowsAreRefused) {
  const auto file = open_lines(R"({"a": "1", "b": 1.5})");
  EXPECT_THROW(file.integer(0, "a"), EnvironmentError);
  EXPECT_THROW(file.number(0, "a"), EnvironmentError);
  EXPECT_THROW(file.integer(0, "b"), EnvironmentError);
  EXPECT_THROW(file.field(1, "a"), UsageError);
}

TEST(JsonLines, NeedsAFile) {
  EXPECT_THAT(message_of<UsageError>([] { JsonLines(nullptr); }), HasSubstr("JSON lines file"));
}

TEST(JsonLines, RefusesALineOfMoreThan64MiBAtOnce) {
  EXPECT_THAT(message_of<EnvironmentError>([] { JsonLines{std::make_shared<const ZeroFile>()}; }),
              AllOf(HasSubstr("'zeros', byte offset 0"), HasSubstr("at most 67108864 bytes")));
}

TEST(Json, FindsWhatIsNotUtf8) {
  // The Unicode Standard 15.0, table 3-7, just inside and just outside.
  for (const std::string good : {"\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                                 "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(detail::find_invalid_utf8(good + "a" + good), 2 * good.size() + 1);
  }
  for (const std::string bad : {"\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                                "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xc2\x41", "\xe1\x80\xc0"}) {
    EXPECT_LT(detail::find_invalid_utf8(bad), bad.size());
  }
  EXPECT_EQ(detail::find_invalid_utf8("ab\xc3\xa9\xff"), 4u);
  EXPECT_EQ(detail::find_invalid_utf8("ab\xc3"), 3u);
}

}  // namespace
}  // namespace libtrain::data
