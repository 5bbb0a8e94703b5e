#include <libtrain/base/environment.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include <libtrain/base/error.hpp>

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

TEST(Environment, ReadsWholeNumbersInTheirRange) {
  const Environment environment{{{"LOW", "-2"}, {"HIGH", "7"}, {"ZEROS", "007"}, {"EMPTY", ""}}};
  EXPECT_EQ(environment.integer("LOW", -2, 7), -2);
  EXPECT_EQ(environment.integer("HIGH", -2, 7), 7);
  EXPECT_EQ(environment.integer("ZEROS", -2, 7), 7);
  EXPECT_FALSE(environment.integer("EMPTY", -2, 7).has_value());
  EXPECT_FALSE(environment.integer("UNSET", -2, 7).has_value());
}

TEST(Environment, RefusesGarbageNumbersAndNamesVariableValueAndRange) {
  const std::vector<std::string> garbage{"3 ",    " 3",  "+3", "3.0", "0x3",
                                         "three", "3\n", "8",  "-1",  "99999999999999999999"};
  for (const auto& value : garbage) {
    const Environment environment{{{"RANK", value}}};
    try {
      environment.integer("RANK", 0, 7);
      ADD_FAILURE() << "accepted '" << value << "'";
    } catch (const EnvironmentError& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find("RANK"), std::string::npos) << message;
      EXPECT_NE(message.find("'" + value + "'"), std::string::npos) << message;
      EXPECT_NE(message.find("from 0 to 7"), std::string::npos) << message;
    }
  }
}

TEST(Environment, CopiesTheProcessEnvironmentOnce) {
  ASSERT_EQ(setenv("LIBTRAIN_ENVIRONMENT_TEST", "before=after", 1), 0);
  const auto environment = Environment::of_process();
  ASSERT_EQ(unsetenv("LIBTRAIN_ENVIRONMENT_TEST"), 0);
  EXPECT_EQ(environment.get("LIBTRAIN_ENVIRONMENT_TEST"), "before=after");
  EXPECT_FALSE(Environment::of_process().has("LIBTRAIN_ENVIRONMENT_TEST"));
}

TEST(ParseInteger, AcceptsTheEndsOfTheRangeAndNothingBeyond) {
  EXPECT_EQ(parse_integer("9223372036854775807", 0, 9223372036854775807LL), 9223372036854775807LL);
  EXPECT_FALSE(parse_integer("9223372036854775808", 0, 9223372036854775807LL).has_value());
  EXPECT_FALSE(parse_integer("", 0, 1).has_value());
  EXPECT_FALSE(parse_integer("-", -1, 1).has_value());
}

}  // namespace
}  // namespace libtrain
