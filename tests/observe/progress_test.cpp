#include <libtrain/observe/progress.hpp>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <tests/support/log_sinks.hpp>

namespace libtrain {
namespace {

using namespace std::chrono_literals;
using test::ScopedLogSink;
using test::SilentLog;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kClear = "\r\x1b[K";

class ProgressTest : public ::testing::Test {
 protected:
  ProgressTest() {
    int ends[2];
    if (pipe2(ends, O_NONBLOCK) != 0) throw std::runtime_error("pipe2");
    read_end_ = ends[0];
    write_end_ = ends[1];
  }

  ~ProgressTest() override {
    close(read_end_);
    close(write_end_);
  }

  Progress::Options options(Progress::Output output) {
    return {.file_descriptor = write_end_,
            .output = output,
            .now = [this] { return now_; },
            .columns = [this] { return columns_; }};
  }

  static std::string drain(int descriptor) {
    std::string all;
    char block[4096];
    for (ssize_t got; (got = read(descriptor, block, sizeof block)) > 0;) all.append(block, static_cast<size_t>(got));
    return all;
  }

  std::string shown() const { return drain(read_end_); }

  Progress::Clock::time_point now_{};
  int columns_ = 60;
  int read_end_ = -1;
  int write_end_ = -1;
};

TEST_F(ProgressTest, RedrawsTheBarAtMostTenTimesASecond) {
  Progress progress{options(Progress::Output::bar)};
  progress.begin_epoch({.number = 1, .count = 2, .steps = 1000});
  EXPECT_THAT(shown(), HasSubstr("0/1000"));
  int redraws = 0;
  for (int step = 1; step <= 1000; ++step) {
    now_ += 1ms;
    progress.update(step, {{0.5, "loss"}});
    if (!shown().empty()) ++redraws;
  }
  EXPECT_EQ(redraws, 10);
}

TEST_F(ProgressTest, EstimatesTheTimeLeftFromThisEpochsPace) {
  Progress progress{options(Progress::Output::bar)};
  progress.begin_epoch({.number = 1, .steps = 100, .first_step = 40});
  shown();
  now_ += 20s;
  progress.update(50);
  EXPECT_EQ(shown(), kClear + "epoch 1 [###############...............] 50/100 eta 1:40");
}

TEST_F(ProgressTest, FollowsTheWidthOfTheTerminal) {
  Progress progress{options(Progress::Output::bar)};
  columns_ = 17;
  progress.begin_epoch({.number = 1, .count = 2, .steps = 100000});
  EXPECT_EQ(shown(), kClear + "epoch 1/2 0/1000");
}

TEST_F(ProgressTest, EndsAnEpochWithALineThatStays) {
  Progress progress{options(Progress::Output::bar)};
  progress.begin_epoch({.number = 2, .count = 2, .steps = 10});
  progress.update(10, {{0.25, "loss"}});
  now_ += 61s;
  shown();
  progress.end_epoch();
  EXPECT_EQ(shown(), kClear + "epoch 2/2 done: 10 steps in 1:01, 0.25 loss\n");
}

TEST_F(ProgressTest, WritesPlainLinesEveryFewSeconds) {
  Progress progress{options(Progress::Output::lines)};
  progress.begin_epoch({.number = 1, .count = 1, .steps = 120});
  for (int step = 1; step <= 120; ++step) {
    now_ += 100ms;
    progress.update(step);
  }
  progress.end_epoch({{0.9, "accuracy"}});
  EXPECT_EQ(shown(),
            "epoch 1/1 50/120 eta 0:07\n"
            "epoch 1/1 100/120 eta 0:02\n"
            "epoch 1/1 done: 120 steps in 0:12, 0.9 accuracy\n");
}

TEST_F(ProgressTest, QuietSaysNothing) {
  Progress progress{options(Progress::Output::quiet)};
  progress.begin_epoch({.number = 1, .count = 1, .steps = 2});
  now_ += 1h;
  progress.update(1);
  progress.print("line");
  progress.end_epoch();
  EXPECT_EQ(shown(), "");
}

TEST_F(ProgressTest, PrintsAboveTheBar) {
  Progress progress{options(Progress::Output::bar)};
  progress.begin_epoch({.number = 1, .steps = 4});
  const std::string bar = shown();
  progress.print("saved");
  EXPECT_EQ(shown(), kClear + "saved\n" + bar);
}

TEST_F(ProgressTest, LogMessagesAppearAboveTheBar) {
  configure_log(Environment{});
  const ScopedLogSink stream(
      [this](LogLevel, const std::string& lines) { EXPECT_GT(write(write_end_, lines.data(), lines.size()), 0); });
  {
    Progress progress{options(Progress::Output::bar)};
    log_info("before");
    EXPECT_EQ(shown(), "libtrain: before\n");
    progress.begin_epoch({.number = 1, .steps = 4});
    const std::string bar = shown();
    log_warning("disk is slow");
    EXPECT_EQ(shown(), kClear + "libtrain: warning: disk is slow\n" + bar);
  }
  EXPECT_EQ(shown(), kClear);
  log_info("after");
  EXPECT_EQ(shown(), "libtrain: after\n");
}

TEST_F(ProgressTest, ThreadsMayLogWhileTheBarMoves) {
  const SilentLog silence;
  auto options_now = options(Progress::Output::bar);
  options_now.redraw_interval = 0ms;
  Progress progress{std::move(options_now)};
  progress.begin_epoch({.number = 1, .steps = 300});
  const std::jthread logger{[] {
    for (int i = 0; i < 300; ++i) log_warning("w");
  }};
  for (int step = 1; step <= 300; ++step) {
    progress.update(step);
    shown();
  }
}

TEST_F(ProgressTest, AClosedStreamSilencesIt) {
  auto broken = options(Progress::Output::lines);
  broken.file_descriptor = -1;
  Progress progress{std::move(broken)};
  progress.begin_epoch({.number = 1, .steps = 1});
  progress.end_epoch();
  progress.end_epoch();
}

TEST_F(ProgressTest, ChoosesLinesForAPipe) {
  Progress progress{options(Progress::Output::automatic)};
  progress.begin_epoch({.number = 1, .steps = 4});
  progress.end_epoch();
  EXPECT_THAT(shown(), Not(HasSubstr("\x1b")));
}

TEST_F(ProgressTest, ChoosesABarAsWideAsTheTerminal) {
  const winsize size{.ws_row = 24, .ws_col = 17, .ws_xpixel = 0, .ws_ypixel = 0};
  int master = -1;
  int slave = -1;
  ASSERT_EQ(openpty(&master, &slave, nullptr, nullptr, &size), 0);
  ASSERT_EQ(fcntl(master, F_SETFL, O_NONBLOCK), 0);
  auto on_terminal = options(Progress::Output::automatic);
  on_terminal.file_descriptor = slave;
  on_terminal.columns = nullptr;
  {
    Progress progress{std::move(on_terminal)};
    progress.begin_epoch({.number = 1, .count = 2, .steps = 100000});
    EXPECT_EQ(drain(master), kClear + "epoch 1/2 0/1000");
  }
  close(slave);
  close(master);
}

// What a rank under mpirun finds as its standard output, whatever mpirun's own output is.
TEST_F(ProgressTest, ChoosesLinesForATerminalWithoutASize) {
  int master = -1;
  int slave = -1;
  ASSERT_EQ(openpty(&master, &slave, nullptr, nullptr, nullptr), 0);
  ASSERT_EQ(fcntl(master, F_SETFL, O_NONBLOCK), 0);
  auto on_terminal = options(Progress::Output::automatic);
  on_terminal.file_descriptor = slave;
  {
    Progress progress{std::move(on_terminal)};
    progress.begin_epoch({.number = 1, .steps = 4});
    EXPECT_EQ(drain(master), "");
  }
  close(slave);
  close(master);
}

}  // namespace
}  // namespace libtrain
