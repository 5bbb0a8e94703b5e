#include <libtrain/data/sources/class_names.hpp>

#include <cstdint>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/data/memory_file.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data::detail {
namespace {

using libtrain::test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ClassNames names_in(const std::string& bytes) {
  return ClassNames(MemoryFile(bytes, "classes.txt"));
}

std::string refusal(const std::string& bytes) {
  return message_of<EnvironmentError>([&] { names_in(bytes); });
}

TEST(ClassNames, AreTheLinesOfTheFile) {
  EXPECT_THAT(names_in("cat\nsea dog\n").names(), ElementsAre("cat", "sea dog"));
  EXPECT_THAT(names_in("cat\nsea dog").names(), ElementsAre("cat", "sea dog"));
  EXPECT_THAT(names_in("cat\r\nsea dog\r\n").names(), ElementsAre("cat", "sea dog"));
  EXPECT_THAT(names_in(" \n\xc3\xa4\n").names(), ElementsAre(" ", "\xc3\xa4"));
}

TEST(ClassNames, MayNotBeEmpty) {
  EXPECT_THAT(refusal(""), AllOf(HasSubstr("'classes.txt', byte offset 0"), HasSubstr("no line")));
  EXPECT_THAT(refusal("\n"), AllOf(HasSubstr("'classes.txt', byte offset 0"), HasSubstr("empty line")));
  EXPECT_THAT(refusal("cat\r\n\r\ndog\r\n"), AllOf(HasSubstr("'classes.txt', byte offset 5"), HasSubstr("empty line")));
  EXPECT_THAT(refusal("cat\n\n"), HasSubstr("byte offset 4"));
}

TEST(ClassNames, BelongToTheLabelsBelowTheirNumber) {
  const ClassNames classes = names_in("cat\ndog\n");
  int asked = 0;
  const auto source = [&] {
    ++asked;
    return std::string("Sample 17");
  };
  for (const std::int64_t label : {0, 1}) classes.require(label, source);
  EXPECT_EQ(asked, 0);
  EXPECT_THAT(message_of<EnvironmentError>([&] { classes.require(2, source); }),
              AllOf(HasSubstr("Sample 17"), HasSubstr("below 2"), HasSubstr("'classes.txt'"), HasSubstr("found 2")));
  EXPECT_THROW(classes.require(INT64_MAX, source), EnvironmentError);
}

TEST(ClassNames, ThatAreNotKnownAllowAnyLabel) {
  const ClassNames unknown;
  EXPECT_THAT(unknown.names(), IsEmpty());
  unknown.require(INT64_MAX, [] { return std::string(); });
}

}  // namespace
}  // namespace libtrain::data::detail
