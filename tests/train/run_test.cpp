// What `run` makes of what the body leaves behind, in a job of one rank.

#include <libtrain/train/run.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/comm/detail/single/single_communicator.hpp>
#include <libtrain/train/detail/core_share.hpp>
#include <libtrain/train/detail/peak_memory.hpp>
#include <libtrain/train/require_finite.hpp>

#include <tests/support/log_sinks.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain {
namespace {

using test::CapturedLog;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Run : public ::testing::Test {
 protected:
  int run_body(const std::function<void(Context&)>& body, const std::vector<std::string>& options = {}) const {
    std::vector<std::string> words{"program", "--quiet", "--output", folder_.path().string()};
    words.insert(words.end(), options.begin(), options.end());
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(word.data());
    return run(static_cast<int>(arguments.size()), arguments.data(), body);
  }

  std::vector<std::string> lines() const {
    std::ifstream stream{folder_.path() / "metrics.jsonl"};
    std::vector<std::string> all;
    for (std::string line; std::getline(stream, line);) all.push_back(line);
    return all;
  }

  const test::TemporaryFolder folder_;
};

TEST_F(Run, FailsWithoutASummaryWhereTheResultIsNoNumber) {
  const CapturedLog log{LogLevel::error};
  const auto code = run_body([](Context& context) {
    context.metrics();
    context.summary().set("loss", kNan).set("epochs", 3);
  });
  EXPECT_EQ(code, static_cast<int>(ExitCode::usage));
  EXPECT_THAT(lines(), ElementsAre(HasSubstr(R"("event":"run")")));
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("NaN or infinity as its loss: the training has diverged")));
}

TEST_F(Run, TakesNullForAResultThatThereIsNot) {
  EXPECT_EQ(run_body([](Context& context) { context.summary().set("accuracy", kNan).set("accuracy", nullptr); }), 0);
  EXPECT_THAT(lines(), ElementsAre(HasSubstr(R"("event":"run")"), HasSubstr(R"("accuracy":null)")));
}

TEST_F(Run, GivesEveryRecordTheIdOfItsRun) {
  std::vector<std::string> ids;
  for (int number = 0; number < 2; ++number) {
    EXPECT_EQ(run_body([&](Context& context) {
                ids.push_back(context.run_id());
                EXPECT_EQ(context.shard().run_id, ids.back());  // for bad_samples.jsonl
              }),
              0);
  }
  ASSERT_EQ(ids.size(), 2u);
  EXPECT_NE(ids[0], ids[1]);
  for (const auto& id : ids) EXPECT_THAT(id, ::testing::MatchesRegex("[0-9a-f]{32}"));
  const auto of = [](const std::string& id) { return HasSubstr(",\"run_id\":\"" + id + "\","); };
  EXPECT_THAT(lines(), ElementsAre(of(ids[0]), of(ids[0]), of(ids[1]), of(ids[1])));
}

TEST_F(Run, WarnsOfAnOptionThatTheBodyNeverAskedFor) {
  const CapturedLog log{LogLevel::warning};
  EXPECT_EQ(run_body([](Context& context) { context.option("data"); }, {"--data", "here", "--epochs", "3"}), 0);
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("--epochs had no effect")));
}

TEST_F(Run, ComputesWithItsShareOfTheCoresUnlessToldHowManyThreads) {
  const int before = at::get_num_threads();
  const auto told = Environment::of_process().get("OMP_NUM_THREADS");
  const auto threads = [&](const std::vector<std::string>& options) {
    int found = 0;
    EXPECT_EQ(run_body([&](Context&) { found = at::get_num_threads(); }, options), 0);
    return found;
  };
  const int fair = detail::fair_thread_count({detail::my_cores()}, 0);
  EXPECT_EQ(threads({"--threads", std::to_string(fair + 1)}), fair + 1);
  setenv("OMP_NUM_THREADS", "1", 1);  // read by OpenMP itself when it was loaded
  EXPECT_EQ(threads({}), fair + 1);
  unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(threads({}), fair);
  if (told) setenv("OMP_NUM_THREADS", told->c_str(), 1);
  at::set_num_threads(before);
}

TEST_F(Run, RefusesAFolderInUseBeforeTheBody) {
  MetricsWriter other{folder_.path()};
  const CapturedLog log{LogLevel::error};
  EXPECT_EQ(run_body([](Context&) { ADD_FAILURE() << "the body ran"; }), static_cast<int>(ExitCode::environment));
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("is writing to '" + folder_.path().string())));
  EXPECT_THAT(lines(), IsEmpty());
}

TEST_F(Run, SaysOfASecondWriterOfTheBodysThatItsOwnProcessIsWriting) {
  const CapturedLog log{LogLevel::error};
  const auto code = run_body([](Context& context) {
    context.metrics();
    const MetricsWriter second{context.output_directory()};
  });
  EXPECT_EQ(code, static_cast<int>(ExitCode::environment));
  EXPECT_THAT(log.lines(), ElementsAre(AllOf(HasSubstr("This process (run "), HasSubstr("Context::metrics()"))));
}

// Its work is done, and nothing may be lost for want of a folder of its own.
TEST_F(Run, EndsWellWhereAnotherHasComeToItsFolderMeanwhile) {
  std::optional<MetricsWriter> other;
  EXPECT_EQ(run_body([&](Context& context) { other.emplace(context.output_directory()); }), 0);
  EXPECT_THAT(lines(), ElementsAre(HasSubstr(R"("event":"run")"), HasSubstr(R"("event":"summary")")));
}

TEST(PeakMemory, IsThatOfTheLargestRank) {
  struct ThreeRanks : detail::SingleCommunicator {
    std::vector<std::string> all_gather_bytes(const std::string& /*bytes*/, const CallOptions& /*options*/) override {
      return {"5", "9", "7"};
    }
  } communicator;
  EXPECT_EQ(detail::peak_rss_of_ranks(communicator), 9);
}

TEST(RequireFinite, NamesTheFirstParameterOrBufferThatIsNot) {
  const auto message_of = [](const torch::nn::Module& module) -> std::string {
    try {
      require_finite(module);
    } catch (const UsageError& error) {
      return error.what();
    }
    return {};
  };
  const torch::NoGradGuard no_grad;
  torch::nn::Linear linear{3, 2};
  EXPECT_EQ(message_of(*linear), "");
  linear->bias[1] = kInfinity;
  EXPECT_THAT(message_of(*linear), HasSubstr("Parameter 'bias' has 1 of 2 elements that are not finite"));
  torch::nn::BatchNorm1d norm{4};
  EXPECT_EQ(message_of(*norm), "");
  norm->running_var.fill_(kNan);
  EXPECT_THAT(message_of(*norm), HasSubstr("Buffer 'running_var' has 4 of 4 elements"));
}

}  // namespace
}  // namespace libtrain
