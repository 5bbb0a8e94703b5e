#include <libtrain/base/log.hpp>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace libtrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class Log : public testing::Test {
 protected:
  Log() {
    configure_log(Environment{});
    set_log_identity(0, 1);
    former_ = set_log_sink([this](LogLevel, const std::string& lines) { written_.push_back(lines); });
  }

  ~Log() override {
    set_log_sink(former_);
    configure_log(Environment{});
    set_log_identity(0, 1);
  }

  static void log_one_of_each() {
    log_debug("d");
    log_info("i");
    log_warning("w");
    log_error("e");
  }

  static Environment with_level(const std::string& word) { return Environment{{{"LIBTRAIN_LOG", word}}}; }

  std::vector<std::string> written_;

 private:
  LogSink former_;
};

TEST_F(Log, RankZeroSpeaksFromInfoUp) {
  set_log_identity(0, 4);
  log_one_of_each();
  EXPECT_THAT(written_, ElementsAre("libtrain: i\n", "libtrain: warning: w\n", "libtrain: error: e\n"));
}

TEST_F(Log, OtherRanksSpeakInTroubleAndSayWhoTheyAre) {
  set_log_identity(3, 4);
  log_one_of_each();
  EXPECT_THAT(written_, ElementsAre("libtrain[rank 3]: warning: w\n", "libtrain[rank 3]: error: e\n"));
}

TEST_F(Log, DebugOpensEveryRank) {
  configure_log(with_level("debug"));
  set_log_identity(1, 2);
  log_one_of_each();
  EXPECT_EQ(written_.size(), 4u);
  EXPECT_EQ(written_.front(), "libtrain[rank 1]: d\n");
}

TEST_F(Log, TheEnvironmentSetsTheLevel) {
  configure_log(with_level("error"));
  log_one_of_each();
  EXPECT_THAT(written_, ElementsAre("libtrain: error: e\n"));
}

TEST_F(Log, AWrongLevelGivesOneWarning) {
  configure_log(with_level("verbose"));
  log_info("first");
  log_info("second");
  ASSERT_EQ(written_.size(), 3u);
  EXPECT_THAT(written_[0], HasSubstr("libtrain: warning: LIBTRAIN_LOG is 'verbose'"));
  EXPECT_EQ(written_[1], "libtrain: first\n");
}

TEST_F(Log, OnlyRankZeroWarnsOfAWrongLevel) {
  configure_log(with_level("verbose"));
  set_log_identity(1, 2);
  log_warning("w");
  EXPECT_THAT(written_, ElementsAre("libtrain[rank 1]: warning: w\n"));
}

TEST_F(Log, AnExplicitLevelOverridesTheEnvironment) {
  configure_log(with_level("error"));
  set_log_level(LogLevel::info);
  log_info("i");
  EXPECT_THAT(written_, ElementsAre("libtrain: i\n"));
}

TEST_F(Log, IndentsFurtherLines) {
  log_info("first\r\nsecond\nthird\n\n");
  EXPECT_THAT(written_, ElementsAre("libtrain: first\n  second\n  third\n"));
}

TEST_F(Log, DisarmsControlCharacters) {
  log_info("a\x1b[2Jb\tc");
  EXPECT_THAT(written_, ElementsAre("libtrain: a?[2Jb\tc\n"));
}

TEST_F(Log, MasksSecrets) {
  log_info("reading https://store.example/container/file?sv=1&sig=abcdef123 now");
  ASSERT_EQ(written_.size(), 1u);
  EXPECT_THAT(written_[0], Not(HasSubstr("abcdef123")));
  EXPECT_THAT(written_[0], HasSubstr("***"));
}

TEST_F(Log, AThrowingSinkDoesNotReachTheCaller) {
  set_log_sink([](LogLevel, const std::string&) { throw std::runtime_error("sink"); });
  log_error("e");
  EXPECT_THAT(written_, IsEmpty());
}

TEST_F(Log, KeepsMessagesOfThreadsApart) {
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([] {
        for (int i = 0; i < 200; ++i) log_info("first\nsecond");
      });
    }
  }
  EXPECT_EQ(written_.size(), 800u);
  EXPECT_THAT(written_, testing::Each("libtrain: first\n  second\n"));
}

// A pipe in packet mode gives one read for each write.
TEST_F(Log, WritesAMessageInOneCall) {
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_DIRECT | O_NONBLOCK), 0);
  const int saved = dup(STDERR_FILENO);
  ASSERT_GE(dup2(pipe_ends[1], STDERR_FILENO), 0);
  set_log_sink({});
  log_warning("first\nsecond");
  dup2(saved, STDERR_FILENO);
  close(saved);
  char packet[256];
  const auto length = read(pipe_ends[0], packet, sizeof packet);
  ASSERT_GT(length, 0);
  EXPECT_EQ(std::string(packet, static_cast<std::size_t>(length)), "libtrain: warning: first\n  second\n");
  EXPECT_LT(read(pipe_ends[0], packet, sizeof packet), 0);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

}  // namespace
}  // namespace libtrain
