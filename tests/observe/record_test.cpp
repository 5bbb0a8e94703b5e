#include <libtrain/observe/record.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include <libtrain/base/error.hpp>

namespace libtrain {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Record, BeginsWithEventAndTime) {
  EXPECT_EQ(Record{"run"}.line(1.5), "{\"event\":\"run\",\"time\":1.5}\n");
}

TEST(Record, NamesItsRunBehindTheTime) {
  EXPECT_EQ(Record{"step"}.set("step", 1).line(1.5, "abc"),
            "{\"event\":\"step\",\"time\":1.5,\"run_id\":\"abc\",\"step\":1}\n");
}

TEST(Record, TellsWhichNumbersAreNotFinite) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Record record{"summary"};
  record.set("loss", kNan).set("rates", std::vector{1.0, -kInfinity}).set("inner", Record{"i"}.set("x", kInfinity));
  record.set("none", nullptr).set("epochs", 3).set("name", "nan").set("seconds", 1.5);
  EXPECT_THAT(record.non_finite(), testing::ElementsAre("loss", "inner"));
  record.set("loss", 0.5).set("seconds", kNan);
  EXPECT_THAT(record.non_finite(), testing::ElementsAre("inner", "seconds"));
}

TEST(Record, KeepsTheOrderOfKeys) {
  Record record{"step"};
  record.set("step", 12).set("loss", 0.25).set("last", false).set("run", "a").set("gap", nullptr);
  EXPECT_EQ(record.line(2.0),
            "{\"event\":\"step\",\"time\":2.0,\"step\":12,\"loss\":0.25,\"last\":false,\"run\":\"a\",\"gap\":null}\n");
}

TEST(Record, SettingAKeyAgainReplacesItsValue) {
  Record record{"e"};
  record.set("a", 1).set("b", 2).set("a", "x");
  EXPECT_EQ(record.line(0.0), "{\"event\":\"e\",\"time\":0.0,\"a\":\"x\",\"b\":2}\n");
}

TEST(Record, EscapesKeysAndStrings) {
  Record record{"e"};
  record.set("a\"b", std::string{"line\nquote\" back\\slash \x01"});
  EXPECT_THAT(record.line(0.0), HasSubstr(R"("a\"b":"line\nquote\" back\\slash \u0001"})"));
}

TEST(Record, ReplacesBytesThatAreNotUtf8) {
  EXPECT_THAT(Record{"e"}
                  .set("a",
                       "x\xff"
                       "y")
                  .line(0.0),
              HasSubstr("\"a\":\"x\xef\xbf\xbdy\""));
}

TEST(Record, WritesNanAndInfinityAsNull) {
  Record record{"e"};
  record.set("a", std::numeric_limits<double>::quiet_NaN()).set("b", -std::numeric_limits<double>::infinity());
  record.set("c", std::vector<double>{1.0, std::numeric_limits<double>::infinity()});
  EXPECT_THAT(record.line(0.0), HasSubstr("\"a\":null,\"b\":null,\"c\":[1.0,null]}"));
}

TEST(Record, DoublesReadBackTheSame) {
  using Limits = std::numeric_limits<double>;
  for (const double value : {0.1, 1.0 / 3.0, 1e300, 5e-324, -2.5e-7, Limits::max(), 1763709600.123456}) {
    const std::string line = Record{"e"}.set("a", value).line(0.0);
    const auto at = line.find("\"a\":") + 4;
    EXPECT_EQ(std::strtod(line.c_str() + at, nullptr), value) << line;
  }
}

TEST(Record, KeepsAll64BitsOfIntegers) {
  Record record{"e"};
  record.set("a", std::numeric_limits<std::int64_t>::min()).set("b", std::numeric_limits<std::uint64_t>::max());
  EXPECT_THAT(record.line(0.0), HasSubstr("\"a\":-9223372036854775808,\"b\":18446744073709551615}"));
}

TEST(Record, WritesListsAndObjects) {
  Record record{"run"};
  record.set("sizes", std::vector<std::int64_t>{1, 2}).set("names", std::vector<std::string>{"a", "b"});
  record.set("config", std::vector<std::pair<std::string, std::string>>{{"lr", "0.1"}, {"model", "mlp"}});
  EXPECT_THAT(record.line(0.0), HasSubstr(R"("sizes":[1,2],"names":["a","b"],"config":{"lr":"0.1","model":"mlp"}})"));
}

TEST(Record, HoldsOtherRecordsAsObjects) {
  const auto inner = Record{"inner"}.set("count", 3).set("gap", nullptr);
  EXPECT_EQ(Record{"e"}.set("a", inner).set("b", Record{"nothing"}).line(0.0),
            "{\"event\":\"e\",\"time\":0.0,\"a\":{\"count\":3,\"gap\":null},\"b\":{}}\n");
}

TEST(Record, MasksSecrets) {
  Record record{"run"};
  record.set("data", "https://store.example/c/f?sig=abcdef123").set("access_token", "s3cret");
  record.set("config", std::vector<std::pair<std::string, std::string>>{{"access_token", "s3cret"}});
  EXPECT_THAT(record.line(0.0), Not(HasSubstr("abcdef123")));
  EXPECT_THAT(record.line(0.0), Not(HasSubstr("s3cret")));
}

TEST(Record, RefusesReservedAndEmptyNames) {
  EXPECT_THROW(Record{""}, UsageError);
  EXPECT_THROW(Record{"e"}.set("", 1), UsageError);
  EXPECT_THROW(Record{"e"}.set("event", 1), UsageError);
  EXPECT_THROW(Record{"e"}.set("time", 1), UsageError);
}

}  // namespace
}  // namespace libtrain
