#include <libtrain/base/text.hpp>

#include <locale>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <libtrain/base/detail/digits.hpp>

namespace libtrain {
namespace {

// As in French: 12 345,5.
class GroupsDigits : public std::numpunct<char> {
 protected:
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return ' '; }
  std::string do_grouping() const override { return "\3"; }
};

class GlobalLocale {
 public:
  explicit GlobalLocale(const std::locale& locale) : former_(std::locale::global(locale)) {}
  ~GlobalLocale() { std::locale::global(former_); }
  GlobalLocale(const GlobalLocale&) = delete;  // one of the process
  GlobalLocale& operator=(const GlobalLocale&) = delete;

 private:
  const std::locale former_;
};

// Checkpoints and messages between ranks have such text.
TEST(Text, DoesNotDependOnTheLocaleOfTheProgram) {
  const GlobalLocale french{std::locale{std::locale::classic(), new GroupsDigits}};
  EXPECT_EQ(text(12345, ' ', 0.5), "12345 0.5");
  EXPECT_EQ(join(std::vector{1000, 2000}, ", "), "1000, 2000");
  EXPECT_EQ(detail::decimal(12345.25, 1), "12345.2");
  detail::InputText numbers{"1 234 5.5"};
  int first = 0;
  int second = 0;
  double third = 0;
  numbers >> first >> second >> third;
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 234);
  EXPECT_EQ(third, 5.5);
}

}  // namespace
}  // namespace libtrain
