#include <libtrain/checkpoint/background_writer.hpp>

#include <signal.h>

#include <future>
#include <memory>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/checkpoint/checkpoint_folder.hpp>

#include <tests/checkpoint/checkpoints.hpp>
#include <tests/support/log_sinks.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain {
namespace {

using test::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(BackgroundWriter, WritesWhileTheCallerGoesOn) {
  const test::TemporaryFolder folder;
  CheckpointWriter checkpoints{folder.path(), {"run"}};
  std::promise<void> go;
  BackgroundWriter writer;
  writer.start([&] {
    go.get_future().wait();
    test::save(checkpoints, 7);
  });
  EXPECT_TRUE(writer.is_running());
  EXPECT_FALSE(find_newest_checkpoint(folder.path()).checkpoint.has_value());
  go.set_value();
  writer.wait();
  EXPECT_FALSE(writer.is_running());
  EXPECT_EQ(find_newest_checkpoint(folder.path()).checkpoint->manifest().step, 7);
  writer.wait();
}

TEST(BackgroundWriter, RunsOneJobAtATime) {
  BackgroundWriter writer;
  int running = 0;  // no atomic: the jobs do not overlap
  int most = 0;
  for (int i = 0; i < 100; ++i) {
    writer.start([&] {
      most = std::max(most, ++running);
      --running;
    });
  }
  writer.wait();
  EXPECT_EQ(most, 1);
}

TEST(BackgroundWriter, ReportsAnErrorAtTheNextCallOnce) {
  BackgroundWriter writer;
  bool has_run = false;
  writer.start([] { throw EnvironmentError("the disk is full."); });
  EXPECT_EQ(message_of<EnvironmentError>([&] { writer.start([&] { has_run = true; }); }), "the disk is full.");
  writer.wait();
  EXPECT_FALSE(has_run);
  writer.start([] { throw std::runtime_error("other"); });
  EXPECT_THROW(writer.wait(), std::runtime_error);
  writer.start([&] { has_run = true; });
  writer.wait();
  EXPECT_TRUE(has_run);
}

TEST(BackgroundWriter, WaitsAtItsEndAndLogsAnError) {
  const test::CapturedLog log{LogLevel::error};
  std::promise<void> go;
  bool has_run = false;
  {
    BackgroundWriter writer;
    writer.start([&] {
      go.get_future().wait();
      has_run = true;
      throw EnvironmentError("the disk is full.");
    });
    go.set_value();
  }
  EXPECT_TRUE(has_run);
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("error: A checkpoint was not written. the disk is full.")));
}

TEST(BackgroundWriter, DestroysTheJobWhenItEnds) {
  auto snapshot = std::make_shared<std::string>(1000, 'x');
  const std::weak_ptr<std::string> watched = snapshot;
  BackgroundWriter writer;
  writer.start([snapshot = std::move(snapshot)] { EXPECT_EQ(snapshot->size(), 1000u); });
  while (writer.is_running()) std::this_thread::yield();
  EXPECT_TRUE(watched.expired());
}

TEST(BackgroundWriter, DestroysEachPartBeforeTheNextIsWritten) {
  const test::TemporaryFolder folder;
  CheckpointWriter checkpoints{folder.path(), {"run"}};
  auto snapshot = std::make_shared<std::string>("bytes");
  const std::weak_ptr<std::string> watched = snapshot;
  std::vector<CheckpointPart> parts;
  parts.push_back({"a", [snapshot = std::move(snapshot)](CheckpointFileWriter& file) { file.write(*snapshot); }});
  parts.push_back({"b", [&](CheckpointFileWriter&) { EXPECT_TRUE(watched.expired()); }});
  write_checkpoint_files(folder.path(), checkpoints.begin(1), std::move(parts));
}

TEST(BackgroundWriter, LeavesSignalsToOtherThreads) {
  BackgroundWriter writer;
  sigset_t mask;
  sigemptyset(&mask);
  writer.start([&] { pthread_sigmask(SIG_SETMASK, nullptr, &mask); });
  writer.wait();
  for (const int other : {SIGTERM, SIGUSR1, SIGINT}) EXPECT_EQ(sigismember(&mask, other), 1);
  for (const int own : {SIGSEGV, SIGABRT, SIGBUS}) EXPECT_EQ(sigismember(&mask, own), 0);
  sigset_t ours;
  pthread_sigmask(SIG_SETMASK, nullptr, &ours);
  EXPECT_EQ(sigismember(&ours, SIGTERM), 0);
}

}  // namespace
}  // namespace libtrain
