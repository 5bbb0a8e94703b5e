#include <libtrain/train/detail/config_file.hpp>

#include <algorithm>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::detail {
namespace {

using test::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class ConfigFile : public ::testing::Test {
 protected:
  std::map<std::string, ConfigValue> read(std::string_view content) const {
    test::write_file(file_, content);
    return read_config_file(file_);
  }

  // What is said of the file that has this content.
  std::string refusal_of(std::string_view content) const {
    const auto message = message_of<UsageError>([&] { read(content); });
    const auto begin = text("Configuration file '", file_, "' ");
    EXPECT_TRUE(message.starts_with(begin)) << message;
    return message.substr(std::min(begin.size(), message.size()));
  }

  test::TemporaryFolder folder_;
  std::string file_ = folder_ / "run.json";
};

TEST_F(ConfigFile, KeepsTheTextOfStringsAndTheDigitsOfNumbers) {
  EXPECT_THAT(
      read(R"({"data": "az://pictures", "rate": 1e-4, "decay": 0.10, "count": 10000000000, "shift": -3, "empty": "",
               "seed": 18446744073709551615, "more": 18446744073709551616, "third": 0.33333333333333333333,
               "quiet": true, "verbose": false, "name": "a \"b\" \u00e9"})"),
      ElementsAre(Pair("count", ConfigValue{"10000000000"}), Pair("data", ConfigValue{"az://pictures"}),
                  Pair("decay", ConfigValue{"0.10"}), Pair("empty", ConfigValue{""}),
                  Pair("more", ConfigValue{"18446744073709551616"}), Pair("name", ConfigValue{"a \"b\" \xc3\xa9"}),
                  Pair("quiet", ConfigValue{true}), Pair("rate", ConfigValue{"1e-4"}),
                  Pair("seed", ConfigValue{"18446744073709551615"}), Pair("shift", ConfigValue{"-3"}),
                  Pair("third", ConfigValue{"0.33333333333333333333"}), Pair("verbose", ConfigValue{false})));
  EXPECT_THAT(read(" {\n}\n"), IsEmpty());
}

TEST_F(ConfigFile, NamesTheLineThatIsNotJson) {
  // The column is that of the last byte of the first token that does not fit.
  EXPECT_EQ(refusal_of("{\n  \"epochs\": 3\n  \"seed\": 7\n}\n"),
            "is not valid JSON at line 3, column 8. Check the commas, quotes and braces there.");
  const std::pair<const char*, const char*> places[] = {{"{\"epochs\": 3,\n}", "line 2, column 1."},
                                                        {"{\"epochs\": 3\n", "line 2, column 1."},
                                                        {"{\"data\": \"a\nb\"}", "line 1, column 12."},
                                                        {"{'epochs': 3}", "line 1, column 2."},
                                                        {"{\"epochs\": 3}\n\n {\"seed\": 7}", "line 3, column 2."},
                                                        {"{\"epochs\": 3} // three", "line 1, column 15."},
                                                        {"epochs = 3", "line 1, column 1."},
                                                        {"{\"rate\": 010}", "line 1, column 12."},
                                                        {"{\"rate\": NaN}", "line 1, column 10."},
                                                        {"{\"data\": \"\xff\"}", "line 1, column 11."},
                                                        {"", "line 1, column 1."}};
  for (const auto& [content, place] : places) EXPECT_THAT(refusal_of(content), HasSubstr(place)) << content;
}

TEST_F(ConfigFile, RefusesWhatIsNotOneFlatObject) {
  for (const auto* content : {"3", "[]", "\"epochs\"", "null", "true", "1e400", "[{\"epochs\": 3}]"}) {
    EXPECT_EQ(refusal_of(content), "is not a JSON object. Write options as {\"epochs\": 3}.");
  }
  EXPECT_THAT(refusal_of(R"({"sizes": [1, 2]})"), HasSubstr("gives 'sizes' the value an array"));
  EXPECT_THAT(refusal_of(R"({"model": {"width": 3}})"), HasSubstr("gives 'model' the value an object"));
  EXPECT_THAT(refusal_of(R"({"data": null})"), HasSubstr("gives 'data' the value null"));
  EXPECT_THAT(refusal_of(R"({"rate": 1e400})"), HasSubstr("gives 'rate' the value 1e400"));
  EXPECT_THAT(refusal_of(R"({"data": "a\u0000b"})"), HasSubstr("gives 'data' the value a string with a NUL"));
  EXPECT_EQ(refusal_of(R"({"seed": 1, "epochs": 3, "seed": 1})"), "gives 'seed' twice. Remove one of them.");
  EXPECT_THAT(refusal_of("{" + std::string(1 << 20, ' ') + "}"), HasSubstr("is larger than 1 MiB"));
}

TEST_F(ConfigFile, SaysWhyAFileCannotBeRead) {
  EXPECT_EQ(message_of<EnvironmentError>([&] { read_config_file(folder_ / "absent.json"); }),
            text("Cannot read configuration file '", folder_ / "absent.json",
                 "': No such file or directory. Check the path in --config."));
  EXPECT_THAT(message_of<EnvironmentError>([&] { read_config_file(folder_.path().string()); }),
              HasSubstr("Is a directory"));
}

}  // namespace
}  // namespace libtrain::detail
