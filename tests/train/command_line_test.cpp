#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/base/trace.hpp>
#include <libtrain/comm/detail/single/single_communicator.hpp>
#include <libtrain/train/detail/command_line.hpp>
#include <libtrain/train/run.hpp>

#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

detail::CommandLine parse(std::vector<const char*> words, const Program& program) {
  words.insert(words.begin(), "program");
  return detail::parse_command_line(static_cast<int>(words.size()), words.data(), program);
}

std::string usage_error(const std::vector<const char*>& words, const Program& program) {
  try {
    parse(words, program);
  } catch (const UsageError& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

const Program kDeclared{.description = "Tests.", .options = {{"data", "a folder"}, {"epochs", "how many", "3"}}};

TEST(CommandLine, GivesDeclaredOptionsTheirDefaults) {
  const auto line = parse({"--data", "here"}, kDeclared);
  EXPECT_EQ(line.run.options.at("data"), "here");
  EXPECT_EQ(line.run.options.at("epochs"), "3");
  EXPECT_FALSE(parse({}, kDeclared).run.options.contains("data"));
}

TEST(CommandLine, RefusesWhatWasNotDeclared) {
  EXPECT_THAT(usage_error({"--epoch", "3"}, kDeclared), HasSubstr("--epoch"));
  EXPECT_THAT(usage_error({"--epochs"}, kDeclared), HasSubstr("--epochs"));
}

// A flag among an option and the options of every program, as Horovod's scripts have them.
const Program kFlags{.description = "Tests.",
                     .options = {{.name = "half", .help = "16 bits", .flag = true},
                                 {.name = "shuffle", .help = "in a new order", .value = "true", .flag = true},
                                 {"epochs", "how many", "3"}}};

std::string half(const std::vector<const char*>& words) {
  return parse(words, kFlags).run.options.at("half");
}

TEST(CommandLine, TakesAFlagWithAndWithoutAValue) {
  EXPECT_EQ(half({}), "false");
  EXPECT_EQ(half({"--half"}), "true");
  EXPECT_EQ(half({"--half", "true"}), "true");
  EXPECT_EQ(half({"--half", "false"}), "false");
  EXPECT_EQ(half({"--half=false"}), "false");
  EXPECT_EQ(half({"--half", "--epochs", "4"}), "true");
  EXPECT_EQ(half({"--quiet", "--half"}), "true");
  EXPECT_EQ(half({"--half", "--half", "false"}), "false");
  EXPECT_EQ(parse({"--half", "--epochs", "4"}, kFlags).run.options.at("epochs"), "4");
  EXPECT_EQ(parse({}, kFlags).run.options.at("shuffle"), "true");
  EXPECT_EQ(parse({"--shuffle", "false"}, kFlags).run.options.at("shuffle"), "false");
  EXPECT_THAT(*parse({"--help"}, kFlags).help, HasSubstr("--half "));
}

TEST(CommandLine, RefusesOtherValuesOfAFlag) {
  for (const auto* word : {"yes", "1", "on", "True", "0.5", "here"}) {
    EXPECT_THAT(usage_error({"--half", word}, kFlags), HasSubstr(text("--half: '", word, "' is not true or false")));
    EXPECT_THAT(usage_error({text("--half=", word).c_str()}, kFlags), HasSubstr(text("'", word, "' is not true")));
  }
  EXPECT_THAT(usage_error({"--half="}, kFlags), HasSubstr("Option --half has no value"));
  EXPECT_THAT(usage_error({"--half", "true", "true"}, kFlags), HasSubstr("true"));
}

TEST(CommandLine, GivesAProgramItsFlags) {
  const auto flag = [](const std::vector<const char*>& words, const Program& program) {
    return Context{{std::make_shared<detail::SingleCommunicator>()}, parse(words, program).run}.flag("half");
  };
  EXPECT_FALSE(flag({}, kFlags));
  EXPECT_TRUE(flag({"--half"}, kFlags));
  EXPECT_TRUE(flag({"--half", "true"}, {}));  // a program that declares nothing
  EXPECT_EQ(test::message_of<UsageError>([&] { flag({"--half", "yes"}, {}); }),
            "Option --half is 'yes', which is not true or false.");
  EXPECT_THAT(test::message_of<UsageError>([&] { flag({}, {}); }), HasSubstr("Option --half is required"));
}

TEST(CommandLine, TakesAnythingWhereNothingWasDeclared) {
  const auto line = parse({"--data", "here", "--rate=0.5", "--quiet", "--shift", "-1"}, {});
  EXPECT_EQ(line.run.options.at("data"), "here");
  EXPECT_EQ(line.run.options.at("rate"), "0.5");
  EXPECT_EQ(line.run.options.at("shift"), "-1");
  EXPECT_TRUE(line.run.quiet);
  EXPECT_THAT(usage_error({"data"}, {}), HasSubstr("'data'"));
  EXPECT_THAT(usage_error({"--data"}, {}), HasSubstr("--data needs a value"));
}

TEST(CommandLine, ReadsWhatEveryProgramTakes) {
  const auto line =
      parse({"--rank", "1", "--world-size", "2", "--dist-url", "env://", "--dist-backend", "gloo", "--output", "there",
             "--timeout", "1.5", "--threads", "2", "--seed", "7", "--timeline", "trace.json"},
            {});
  EXPECT_EQ(line.launch.rank, 1);
  EXPECT_EQ(line.launch.world_size, 2);
  EXPECT_EQ(line.launch.dist_url, "env://");
  EXPECT_EQ(line.launch.dist_backend, "gloo");
  EXPECT_EQ(line.run.output, "there");
  EXPECT_EQ(line.timeline, "trace.json");
  EXPECT_EQ(line.timeout_s, 1.5);
  EXPECT_EQ(line.threads, 2);
  EXPECT_EQ(line.run.seed, 7u);
}

TEST(CommandLine, TakesOutputDirForOutput) {
  const auto line = parse({"--data", "here", "--output-dir", "there"}, kDeclared);
  EXPECT_EQ(line.run.output, "there");
  EXPECT_THAT(line.run.common, ElementsAre(Pair("output", "there")));
}

TEST(CommandLine, RefusesValuesOutOfRange) {
  EXPECT_THAT(usage_error({"--timeout", "0"}, {}), HasSubstr("--timeout"));
  EXPECT_THAT(usage_error({"--timeout", "1e12"}, {}), HasSubstr("--timeout"));
  EXPECT_THAT(usage_error({"--threads", "0"}, {}), HasSubstr("--threads"));
  EXPECT_THAT(usage_error({"--device", "tpu"}, {}), HasSubstr("--device"));
  EXPECT_THAT(usage_error({"--seed", "-1"}, {}), HasSubstr("--seed"));
}

TEST(CommandLine, ReadsTheDevice) {
  EXPECT_EQ(parse({}, {}).device, DeviceChoice::automatic);
  EXPECT_EQ(parse({"--device", "auto"}, {}).device, DeviceChoice::automatic);
  EXPECT_EQ(parse({"--device", "cpu"}, {}).device, DeviceChoice::cpu);
  EXPECT_EQ(parse({"--device=cuda"}, {}).device, DeviceChoice::cuda);
}

// CLI11 by itself takes the first for 8, the second for 16, NaN for a number in any range, and blanks.
TEST(CommandLine, ReadsDecimalNumbersOnly) {
  EXPECT_EQ(parse({"--seed", "010"}, {}).run.seed, 10u);
  EXPECT_EQ(parse({"--threads", "007"}, {}).threads, 7);
  EXPECT_EQ(parse({"--timeout", "0.1"}, {}).timeout_s, 0.1);
  EXPECT_EQ(parse({"--timeout", "1.5e2"}, {}).timeout_s, 150);
  EXPECT_EQ(parse({"--seed", "18446744073709551615"}, {}).run.seed, 18446744073709551615u);
  for (const auto* option : {"--seed", "--threads", "--timeout", "--rank", "--world-size", "--local-rank"}) {
    for (const auto* word : {"0x10", "nan", "inf", "-inf", "1e400", "1 ", " 1", "1s", "", "+1", "-1", "1'000"}) {
      EXPECT_THAT(usage_error({option, word}, {}), HasSubstr(option)) << word;
    }
  }
  EXPECT_THAT(usage_error({"--seed", "18446744073709551616"}, {}), HasSubstr("whole number from 0 to"));
  EXPECT_THAT(usage_error({"--timeout", "0"}, {}), HasSubstr("'0' is not a number from 0.1 to 604800"));
}

TEST(CommandLine, RefusesAnOptionWithNothingBehindItsEqualsSign) {
  EXPECT_THAT(usage_error({"--output=", "--quiet"}, {}), HasSubstr("Option --output has no value"));
  EXPECT_THAT(usage_error({"--data=", "--quiet"}, kDeclared), HasSubstr("Option --data has no value"));
  EXPECT_EQ(parse({"--data", "a="}, kDeclared).run.options.at("data"), "a=");
  // As with a shell variable that is empty.
  EXPECT_THAT(usage_error({"--output", "--quiet"}, {}),
              HasSubstr("Option --output has no value: the next word is --quiet"));
  EXPECT_THAT(usage_error({"--data", "--epochs", "3"}, kDeclared), HasSubstr("Option --data has no value"));
  EXPECT_THAT(usage_error({"--undeclared", "--quiet"}, {}), HasSubstr("Option --undeclared has no value"));
  EXPECT_EQ(parse({"--data=--epochs", "--quiet"}, kDeclared).run.options.at("data"), "--epochs");
}

TEST(CommandLine, RefusesAnOutputFolderWithoutAName) {
  EXPECT_THAT(usage_error({"--output", ""}, {}), HasSubstr("--output"));
}

const Program kRecipes{
    .description = "Tests.",
    .options = {{"data", "a folder", "here"},
                {"epochs", "how many", "3"},
                {.name = "half", .help = "a flag", .flag = true}},
    .recipes = {{"plain", "as it is", {}}, {"long", "from a paper", {{"epochs", "600"}, {"half", "true"}}}}};

TEST(CommandLine, TakesTheDefaultsOfARecipe) {
  EXPECT_THAT(parse({}, kRecipes).run.options,
              ElementsAre(Pair("data", "here"), Pair("epochs", "3"), Pair("half", "false"), Pair("recipe", "plain")));
  EXPECT_THAT(parse({"--recipe", "long"}, kRecipes).run.options,
              ElementsAre(Pair("data", "here"), Pair("epochs", "600"), Pair("half", "true"), Pair("recipe", "long")));
  EXPECT_THAT(parse({"--epochs", "3", "--half", "false", "--recipe", "long"}, kRecipes).run.options,
              ElementsAre(Pair("data", "here"), Pair("epochs", "3"), Pair("half", "false"), Pair("recipe", "long")));
  EXPECT_THAT(usage_error({"--recipe", "short"}, kRecipes), AllOf(HasSubstr("plain"), HasSubstr("long")));
  EXPECT_THAT(usage_error({"--recipe", "long"}, kDeclared), HasSubstr("--recipe"));
  EXPECT_THAT(parse({"--help"}, kRecipes).help.value(),
              AllOf(HasSubstr("--recipe"), HasSubstr("long: from a paper"), HasSubstr("--epochs 600 --half true")));
}

TEST(CommandLine, ARecipeGivesAnOptionWithoutADefaultItsValue) {
  auto program = kRecipes;
  program.options.push_back({"rate", "without a default"});
  EXPECT_FALSE(parse({}, program).run.options.contains("rate"));
  program.recipes[1].values["rate"] = "0.5";
  EXPECT_EQ(parse({"--recipe", "long"}, program).run.options.at("rate"), "0.5");
}

TEST(CommandLine, RefusesARecipeForAnOptionThatThereIsNot) {
  auto program = kRecipes;
  program.recipes[1].values["epoch"] = "7";
  EXPECT_THAT(usage_error({"--recipe", "long"}, program), HasSubstr("Recipe 'long' sets 'epoch'"));
}

class ConfigOption : public ::testing::Test {
 protected:
  // The words, after --config with a file of this content.
  detail::CommandLine parse_with(const std::string& content, std::vector<const char*> words,
                                 const Program& program = kDeclared) const {
    test::write_file(file_, content);
    words.insert(words.begin(), {"--config", file_.c_str()});
    return parse(words, program);
  }

  std::string refusal_of(const std::string& content, const Program& program = kDeclared) const {
    return test::message_of<UsageError>([&] { parse_with(content, {}, program); });
  }

  test::TemporaryFolder folder_;
  std::string file_ = folder_ / "run.json";
};

TEST_F(ConfigOption, GivesOptionsOfTheProgramAndCommonOnes) {
  const auto line = parse_with(
      R"({"data": "--odd", "epochs": 1e1, "seed": 7, "output": "-there", "timeout": 0.5, "quiet": true,
          "device": "cpu", "cache-limit": "2K", "world-size": 2})",
      {});
  EXPECT_THAT(line.run.options, ElementsAre(Pair("data", "--odd"), Pair("epochs", "1e1")));
  EXPECT_EQ(line.run.seed, 7u);
  EXPECT_EQ(line.run.output, "-there");
  EXPECT_EQ(line.timeout_s, 0.5);
  EXPECT_TRUE(line.run.quiet);
  EXPECT_EQ(line.device, DeviceChoice::cpu);
  EXPECT_EQ(line.run.data.cache_limit_bytes, 2048u);
  EXPECT_EQ(line.launch.world_size, 2);
  EXPECT_THAT(line.run.common, ElementsAre(Pair("cache-limit", "2048"), Pair("config", file_), Pair("device", "cpu"),
                                           Pair("output", "-there"), Pair("quiet", "true"), Pair("seed", "7"),
                                           Pair("timeout", "0.5"), Pair("world-size", "2")));
}

TEST_F(ConfigOption, GivesFlagsOfTheProgram) {
  const auto half = [&](const std::string& content, const std::vector<const char*>& words) {
    return parse_with(content, words, kFlags).run.options.at("half");
  };
  EXPECT_EQ(half(R"({"half": true})", {}), "true");
  EXPECT_EQ(half(R"({"half": false})", {}), "false");
  EXPECT_EQ(half(R"({"half": false})", {"--half"}), "true");
  EXPECT_EQ(half(R"({"half": true})", {"--half", "false"}), "false");
  EXPECT_EQ(refusal_of(R"({"half": 1})", kFlags),
            text("'half' in configuration file '", file_, "' has a value, but is a flag. Write true or false."));
}

TEST_F(ConfigOption, SelectsARecipeAndWinsOverIt) {
  EXPECT_THAT(parse_with(R"({"recipe": "long", "epochs": 50})", {}, kRecipes).run.options,
              ElementsAre(Pair("data", "here"), Pair("epochs", "50"), Pair("half", "true"), Pair("recipe", "long")));
}

TEST_F(ConfigOption, LosesToTheCommandLine) {
  const auto line = parse_with(R"({"epochs": 10, "data": "there", "seed": 7, "timeout": "never", "quiet": true})",
                               {"--seed", "8", "--timeout=9", "--epochs=3", "--quiet=false"});
  EXPECT_THAT(line.run.options, ElementsAre(Pair("data", "there"), Pair("epochs", "3")));
  EXPECT_EQ(line.run.seed, 8u);
  EXPECT_EQ(line.timeout_s, 9);
  EXPECT_FALSE(line.run.quiet);
}

TEST_F(ConfigOption, TakesAnythingWhereNothingWasDeclared) {
  const auto line = parse_with(R"({"data": "--quiet", "rate": 1e-4, "shift": -1, "seed": 7})", {"--shift", "2"}, {});
  EXPECT_THAT(line.run.options, ElementsAre(Pair("data", "--quiet"), Pair("rate", "1e-4"), Pair("shift", "2")));
  EXPECT_EQ(line.run.seed, 7u);
  EXPECT_FALSE(line.run.quiet);
  EXPECT_EQ(refusal_of(R"({"shuffle": true})", {}),
            text("'shuffle' in configuration file '", file_, "' is true or false. Write a number or a string."));
}

TEST_F(ConfigOption, NamesFileAndKeyOfWhatItRefuses) {
  EXPECT_EQ(refusal_of(R"({"epoch": 3})"),
            text("'epoch' in configuration file '", file_, "' is not an option. --help lists the options."));
  EXPECT_EQ(refusal_of(R"({"epochs": true})"), text("'epochs' in configuration file '", file_,
                                                    "' is true, but takes a value. Write a number or a string."));
  EXPECT_EQ(refusal_of(R"({"quiet": 1})"),
            text("'quiet' in configuration file '", file_, "' has a value, but is a flag. Write true or false."));
  EXPECT_EQ(refusal_of(R"({"threads": 0})"),
            text("Configuration file '", file_, "': --threads: '0' is not a whole ", "number from 1 to 4096."));
  for (const auto* content : {R"({"seed": -1})", R"({"seed": 1.0})", R"({"output": ""})", R"({"device": "tpu"})"}) {
    EXPECT_THAT(refusal_of(content), HasSubstr(text("'", file_, "': --"))) << content;
  }
  for (const auto* name : {"rank", "local-rank", "config", "help"}) {
    for (const auto& program : {kDeclared, Program{}}) {
      EXPECT_THAT(refusal_of(text("{\"", name, "\": 1}"), program), HasSubstr(text(file_, "' has '", name, "', ")));
    }
  }
  for (const auto* name : {"--seed", ""}) {
    EXPECT_THAT(refusal_of(text("{\"", name, "\": 1}"), {}), HasSubstr(text("has the name '", name, "'")));
  }
  EXPECT_THAT(refusal_of("{"), HasSubstr("is not valid JSON"));
  EXPECT_THROW(parse({"--config", "/absent.json"}, kDeclared), EnvironmentError);
  EXPECT_THROW(parse({"--config", ""}, kDeclared), EnvironmentError);
}

TEST_F(ConfigOption, IsRecordedWithTheRun) {
  test::write_file(file_, R"({"rate": 1e-4, "timeout": 60})");
  const auto output = folder_ / "outputs";
  std::vector<std::string> words{"program", "--quiet", "--config", file_, "--epochs", "3", "--output", output};
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  const auto code = run(static_cast<int>(arguments.size()), arguments.data(), [](Context& context) {
    EXPECT_EQ(context.number("rate"), 1e-4);
    EXPECT_EQ(context.integer("epochs"), 3);
  });
  EXPECT_EQ(code, 0);
  const auto metrics = test::read_file(output + "/metrics.jsonl");
  EXPECT_THAT(metrics, HasSubstr(R"("config":{"epochs":"3","rate":"1e-4"})"));
  EXPECT_THAT(metrics, HasSubstr(R"("timeout":"60")"));
  EXPECT_THAT(metrics, HasSubstr(text("\"config\":\"", file_, "\"")));
}

TEST(CommandLine, TellsWhatAResumedRunMustHaveInCommon) {
  const Program program{
      .description = "Tests.",
      .options = {{.name = "data", .help = "a folder", .may_change = true}, {"epochs", "how many", "3"}}};
  const auto line = parse({"--data", "here", "--seed", "7"}, program);
  const Context context{{std::make_shared<detail::SingleCommunicator>()}, line.run};
  EXPECT_EQ(context.option("data"), "here");
  EXPECT_EQ(context.option("epochs"), "3");
  EXPECT_THAT(context.fixed_options(), ElementsAre(Pair("epochs", "3"), Pair("seed", "7")));
}

double number_of(const char* word, double minimum, double maximum) {
  const auto line = parse({"--rate", word}, {});
  const Context context{{std::make_shared<detail::SingleCommunicator>()}, line.run};
  return context.number("rate", minimum, maximum);
}

TEST(CommandLine, AProgramsNumbersAreFiniteAndInRange) {
  constexpr double kLowest = std::numeric_limits<double>::lowest();
  constexpr double kMax = std::numeric_limits<double>::max();
  EXPECT_EQ(number_of("-1.25e-3", kLowest, kMax), -1.25e-3);
  EXPECT_EQ(number_of("0", 0, 1), 0);
  EXPECT_EQ(number_of("1", 0, 1), 1);
  const auto message_of = [](const char* word, double minimum, double maximum) -> std::string {
    try {
      number_of(word, minimum, maximum);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  for (const auto* word : {"nan", "inf", "-inf", "1e400", "0x1p3", " 1", "1 ", "+1", "1,5", ""}) {
    EXPECT_EQ(message_of(word, kLowest, kMax), text("Option --rate is '", word, "', which is not a finite number."));
  }
  EXPECT_EQ(message_of("-0.1", 0, kMax), "Option --rate is '-0.1', which is not a finite number of 0 or more.");
  EXPECT_EQ(message_of("1.5", 0, 1), "Option --rate is '1.5', which is not a number from 0 to 1.");
}

TEST(CommandLine, HelpListsEveryOption) {
  const auto help = parse({"--help"}, kDeclared).help;
  ASSERT_TRUE(help);
  // With the space that ends them: some begin as others do.
  for (const auto* part : {"--data ", "a folder", "--epochs ", "--output,--output-dir ", "--timeline ", "--device ",
                           "--timeout ", "--threads ", "--seed ", "--stage ", "--cache ", "--cache-limit ", "--config ",
                           "--quiet ", "--rank ", "--world-size ", "--local-rank ", "--dist-url ", "--dist-backend "}) {
    EXPECT_THAT(*help, HasSubstr(part));
  }
}

// What `run` makes of --timeline, in a job of one rank.
class TimelineOption : public ::testing::Test {
 protected:
  TimelineOption() {
    std::string pattern = ::testing::TempDir() + "timeline_option_XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }

  ~TimelineOption() override { std::filesystem::remove_all(folder_); }

  int run_with(std::vector<std::string> words, const std::function<void(Context&)>& body) const {
    words.insert(words.begin(), {"program", "--quiet", "--output", (folder_ / "outputs").string()});
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(word.data());
    return run(static_cast<int>(arguments.size()), arguments.data(), body);
  }

  static std::string content(const std::filesystem::path& file) {
    std::ifstream stream{file, std::ios::binary};
    return {std::istreambuf_iterator<char>{stream}, {}};
  }

  std::filesystem::path folder_;
};

TEST_F(TimelineOption, WritesWhatTheBodyRecorded) {
  const auto file = folder_ / "timeline.json";
  const auto code = run_with({"--timeline", file.string()}, [](Context& context) {
    ASSERT_NE(context.trace(), nullptr);
    const TraceSpan span{context.trace(), "compute", "first step"};
  });
  EXPECT_EQ(code, 0);
  EXPECT_THAT(content(file), HasSubstr("\"first step\""));
}

TEST_F(TimelineOption, LeavesWhatARankDidBeforeItFailed) {
  const auto file = folder_ / "timeline.json";
  const auto code = run_with({"--timeline", file.string()}, [](Context& context) {
    const TraceSpan span{context.trace(), "compute", "last step"};
    throw std::runtime_error("This failure is part of a test.");
  });
  EXPECT_EQ(code, static_cast<int>(ExitCode::failure));
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_THAT(content(file.string() + ".rank0"), HasSubstr("\"last step\""));
}

TEST_F(TimelineOption, IsRefusedBeforeTheBodyWhereTheFileCannotBeMade) {
  std::ofstream{folder_ / "occupied"} << "a file";
  const auto file = folder_ / "occupied" / "timeline.json";
  const auto code = run_with({"--timeline", file.string()}, [](Context&) { ADD_FAILURE() << "the body ran"; });
  EXPECT_EQ(code, static_cast<int>(ExitCode::environment));
}

TEST_F(TimelineOption, CostsNothingWhereItIsNotGiven) {
  const auto code = run_with({}, [](Context& context) { EXPECT_EQ(context.trace(), nullptr); });
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace libtrain
