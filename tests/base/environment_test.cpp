#include <libtrain/base/environment.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace libtrain {
namespace {

TEST(Environment, TellsUnsetAndEmptyFromSet) {
  const Environment environment{{{"SET", "x"}, {"EMPTY", ""}}};
  EXPECT_EQ(environment.get("SET"), "x");
  EXPECT_FALSE(environment.get("EMPTY").has_value());
  EXPECT_FALSE(environment.get("UNSET").has_value());
  EXPECT_TRUE(environment.has("SET"));
  EXPECT_FALSE(environment.has("EMPTY"));
  EXPECT_FALSE(Environment{}.has("SET"));
}

TEST(Environment, CopiesTheProcessEnvironmentOnce) {
  ASSERT_EQ(setenv("LIBTRAIN_ENVIRONMENT_TEST", "before=after", 1), 0);
  const auto environment = Environment::of_process();
  ASSERT_EQ(unsetenv("LIBTRAIN_ENVIRONMENT_TEST"), 0);
  EXPECT_EQ(environment.get("LIBTRAIN_ENVIRONMENT_TEST"), "before=after");
  EXPECT_FALSE(Environment::of_process().has("LIBTRAIN_ENVIRONMENT_TEST"));
}

TEST(ParseInteger, RefusesAnythingButDigitsWithAMinus) {
  EXPECT_EQ(parse_integer("-2", -2, 7), -2);
  EXPECT_EQ(parse_integer("007", -2, 7), 7);
  for (const std::string digits : {"3 ", " 3", "+3", "3.0", "0x3", "three", "3\n", "8", "-1", "99999999999999999999"}) {
    EXPECT_FALSE(parse_integer(digits, 0, 7).has_value()) << "'" << digits << "'";
  }
}

TEST(ParseInteger, AcceptsTheEndsOfTheRangeAndNothingBeyond) {
  EXPECT_EQ(parse_integer("9223372036854775807", 0, 9223372036854775807LL), 9223372036854775807LL);
  EXPECT_FALSE(parse_integer("9223372036854775808", 0, 9223372036854775807LL).has_value());
  EXPECT_FALSE(parse_integer("", 0, 1).has_value());
  EXPECT_FALSE(parse_integer("-", -1, 1).has_value());
}

TEST(Environment, ListsTheVariablesWithAPrefix) {
  const Environment environment{{{"NCCL", "no"}, {"NCCL_B", "2"}, {"NCCL_A", "1"}, {"NCCL_EMPTY", ""}, {"OTHER", "x"}}};
  const std::vector<std::pair<std::string, std::string>> expected{{"NCCL_A", "1"}, {"NCCL_B", "2"}};
  EXPECT_EQ(environment.with_prefix("NCCL_"), expected);
  EXPECT_TRUE(Environment{}.with_prefix("NCCL_").empty());
}

}  // namespace
}  // namespace libtrain
