#include <libtrain/base/detail/printable.hpp>

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

namespace libtrain {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Printable, LeavesOrdinaryTextAlone) {
  for (const std::string message :
       {"", "a line\nand\tanother", "caf\u00e9 \u65e5\u672c \U0001f40e", "not UTF-8: \xff\x9b"}) {
    EXPECT_EQ(detail::printable(message), message);
  }
}

TEST(Printable, EscapesWhatTerminalsObey) {
  EXPECT_EQ(detail::printable(std::string("\x1b[2J\a\r\x7f\0.", 9)), "\\x1b[2J\\x07\\x0d\\x7f\\x00.");
  EXPECT_EQ(detail::printable("\u009b2J"), "\\x9b2J") << "the same in one character";
  EXPECT_EQ(detail::printable(detail::printable("\x1b[2J")), "\\x1b[2J");
}

TEST(Printable, GivesOfALongTextTheBeginningAndTheEnd) {
  EXPECT_EQ(detail::printable(std::string(4000, 'x')), std::string(4000, 'x'));
  const auto message = detail::printable("Option " + std::string(130'000, 'x') + " is unknown. Run --help.");
  EXPECT_LT(message.size(), 4100u);
  EXPECT_THAT(message, StartsWith("Option xxx"));
  EXPECT_THAT(message, HasSubstr("... (126031 bytes are left out) ..."));
  EXPECT_THAT(message, EndsWith("xxx is unknown. Run --help."));
  EXPECT_EQ(detail::printable(message), message);
}

TEST(Printable, CutsNoCharacterInTwo) {
  for (int before = 0; before < 4; ++before) {
    std::string message(static_cast<std::size_t>(before), '-');
    for (int i = 0; i < 3000; ++i) message += "\U0001f40e";
    const auto cut = detail::printable(message);
    const auto left_out = cut.find("... (");
    ASSERT_NE(left_out, std::string::npos);
    EXPECT_THAT(cut.substr(0, left_out), EndsWith("\U0001f40e"));
    EXPECT_THAT(cut.substr(cut.find(") ...") + 5), StartsWith("\U0001f40e"));
  }
}

TEST(Printable, IsWhatEveryErrorSays) {
  EXPECT_STREQ(UsageError("no such file: \x1b]0;title\a").what(), "no such file: \\x1b]0;title\\x07");
  EXPECT_LT(std::string(EnvironmentError(std::string(130'000, 'x')).what()).size(), 4100u);
}

}  // namespace
}  // namespace libtrain
