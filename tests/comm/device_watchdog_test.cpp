// The watchdog with a fake communicator and fake operations: no GPU is needed.

#include <libtrain/comm/detail/device/device_watchdog.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>

namespace libtrain::detail {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr auto kMaxWait = 30s;

class PretendedComm : public WatchedComm {
 public:
  void enter_thread() noexcept override { entered_ = std::this_thread::get_id(); }
  std::string asynchronous_error() override {
    if (entered_.load() != std::this_thread::get_id()) was_called_elsewhere = true;
    const std::lock_guard lock(mutex_);
    return error_;
  }
  void abort() noexcept override {
    if (++aborts == 1) aborted.set_value();
    if (stuck.valid()) stuck.wait();
  }
  void close() noexcept override { ++closes; }
  void leave() noexcept override { ++leaves; }

  void report(const std::string& error) {
    const std::lock_guard lock(mutex_);
    error_ = error;
  }

  std::atomic<int> aborts = 0;
  std::atomic<int> closes = 0;
  std::atomic<int> leaves = 0;
  std::atomic<bool> was_called_elsewhere = false;
  std::promise<void> aborted;
  std::shared_future<void> stuck;

 private:
  std::atomic<std::thread::id> entered_;
  std::mutex mutex_;
  std::string error_;
};

class PretendedOperation : public DeviceOperation {
 public:
  explicit PretendedOperation(const Deadline& deadline = Deadline::never())
      : DeviceOperation({.call = {CallKind::all_reduce, 10, DataType::float32, ReduceOp::sum},
                         .device = "cuda",
                         .sequence = 7,
                         .label = std::make_shared<const std::string>("bucket 3")},
                        deadline) {}

  void wait() override {}
  bool done() override { return ended; }
  bool has_ended() override {
    if (is_lost && !knows_of_abort) return false;
    if (stuck.valid()) stuck.wait();
    if (broken) throw std::runtime_error("an illegal memory access was encountered");
    return ended;
  }
  void release() noexcept override { released.set_value(); }
  void note_abort() noexcept override { knows_of_abort = true; }

  std::atomic<bool> is_lost = false;  // ends with the abort
  std::atomic<bool> knows_of_abort = false;
  std::atomic<bool> ended = false;
  std::atomic<bool> broken = false;
  std::shared_future<void> stuck;
  std::promise<void> released;
};

class PretendedMemory : public RetiredMemory {
 public:
  explicit PretendedMemory(std::shared_ptr<std::atomic<bool>> unused) : unused_(std::move(unused)) {}
  ~PretendedMemory() override { freed->set_value(); }
  bool is_unused() override { return *unused_; }

  std::shared_ptr<std::promise<void>> freed = std::make_shared<std::promise<void>>();

 private:
  std::shared_ptr<std::atomic<bool>> unused_;
};

class Watchdog : public ::testing::Test {
 protected:
  std::unique_ptr<DeviceWatchdog> start(OnFailure on_failure = {}) {
    return std::make_unique<DeviceWatchdog>(comm, failure, std::move(on_failure));
  }

  void await_abort() { ASSERT_EQ(comm->aborted.get_future().wait_for(kMaxWait), std::future_status::ready); }

  std::string reason() const {
    try {
      failure->throw_if_any();
    } catch (const CommunicationError& error) {
      return error.what();
    }
    return "";
  }

  std::shared_ptr<PretendedComm> comm = std::make_shared<PretendedComm>();
  std::shared_ptr<FirstFailure> failure = std::make_shared<FirstFailure>();
};

TEST_F(Watchdog, LetsGoOfTensorsWhenTheDeviceIsThrough) {
  const auto watchdog = start();
  const auto operation = std::make_shared<PretendedOperation>();
  watchdog->watch(operation);
  auto released = operation->released.get_future();
  EXPECT_EQ(released.wait_for(0s), std::future_status::timeout);
  operation->ended = true;
  EXPECT_EQ(released.wait_for(kMaxWait), std::future_status::ready);
  EXPECT_EQ(reason(), "");
}

TEST_F(Watchdog, MakesTheDeviceItsThreadsOwnFirst) {
  const auto watchdog = start();
  comm->report("remote process exited");
  await_abort();
  EXPECT_FALSE(comm->was_called_elsewhere);
}

TEST_F(Watchdog, TellsOfAMissedDeadlineBeforeItAborts) {
  std::promise<std::string> told;
  int aborts_when_told = -1;
  const auto watchdog = start([&](const std::string& reason) {
    aborts_when_told = comm->aborts;
    told.set_value(reason);
  });
  watchdog->watch(std::make_shared<PretendedOperation>(Deadline::after(1ms)));
  await_abort();
  EXPECT_THAT(
      told.get_future().get(),
      HasSubstr("all_reduce of 10 float32 (sum) on cuda for bucket 3 (collective number 7) did not finish before "
                "its deadline"));
  EXPECT_EQ(aborts_when_told, 0);
  EXPECT_THAT(reason(), HasSubstr("deadline"));
}

TEST_F(Watchdog, FindsTheDeadlineBehindAnEarlierOperation) {
  const auto watchdog = start();
  watchdog->watch(std::make_shared<PretendedOperation>());
  watchdog->watch(std::make_shared<PretendedOperation>(Deadline::after(1ms)));
  await_abort();
}

TEST_F(Watchdog, TellsOfAMissedDeadlineWhileTheDeviceDoesNotAnswer) {
  std::promise<void> free;
  std::promise<std::string> told;
  const auto watchdog = start([&](const std::string& reason) { told.set_value(reason); });
  const auto operation = std::make_shared<PretendedOperation>(Deadline::after(1ms));
  operation->stuck = free.get_future().share();
  watchdog->watch(operation);
  auto reason_told = told.get_future();
  ASSERT_EQ(reason_told.wait_for(kMaxWait), std::future_status::ready);
  EXPECT_THAT(reason_told.get(), AllOf(HasSubstr("all_reduce of 10 float32 (sum)"), HasSubstr("deadline"),
                                       HasSubstr("the CUDA runtime has not responded")));
  EXPECT_THAT(reason(), HasSubstr("has not responded"));
  EXPECT_EQ(comm->aborts, 0);
  free.set_value();
  await_abort();
}

TEST_F(Watchdog, BearsWithADeviceThatDoesNotAnswerBeforeTheDeadline) {
  std::promise<void> free;
  const auto watchdog = start([](const std::string&) { ADD_FAILURE() << "nothing was late"; });
  const auto operation = std::make_shared<PretendedOperation>(Deadline::after(kMaxWait));
  operation->stuck = free.get_future().share();
  watchdog->watch(operation);
  auto released = operation->released.get_future();
  EXPECT_EQ(released.wait_for(2500ms), std::future_status::timeout);  // more than a round of the supervisor
  operation->ended = true;
  free.set_value();
  EXPECT_EQ(released.wait_for(kMaxWait), std::future_status::ready);
  EXPECT_EQ(reason(), "");
}

TEST_F(Watchdog, ReportsWhatTheLibraryHasFound) {
  const auto watchdog = start();
  comm->report("remote process exited");
  await_abort();
  EXPECT_EQ(reason(), "remote process exited");
}

TEST_F(Watchdog, ReportsADeviceThatFails) {
  const auto watchdog = start();
  const auto operation = std::make_shared<PretendedOperation>();
  operation->broken = true;
  watchdog->watch(operation);
  await_abort();
  EXPECT_THAT(reason(), HasSubstr("illegal memory access"));
}

TEST_F(Watchdog, KeepsTheFirstReasonAndAbortsOnce) {
  auto watchdog = start([](const std::string&) { ADD_FAILURE() << "the caller knew"; });
  watchdog->fail(std::make_exception_ptr(CommunicationError("enough")));
  watchdog->fail(std::make_exception_ptr(CommunicationError("more")));
  comm->report("remote process exited");
  await_abort();
  watchdog.reset();
  EXPECT_EQ(reason(), "enough");
  EXPECT_EQ(comm->aborts, 1);
  EXPECT_EQ(comm->closes, 0);
}

TEST_F(Watchdog, SurvivesACallbackThatThrows) {
  const auto watchdog = start([](const std::string&) { throw std::runtime_error("oops"); });
  comm->report("remote process exited");
  await_abort();
  EXPECT_EQ(reason(), "remote process exited");
}

TEST_F(Watchdog, ClosesWhenNothingRuns) {
  auto watchdog = start();
  const auto operation = std::make_shared<PretendedOperation>();
  operation->ended = true;
  watchdog->watch(operation);
  const Stopwatch stopwatch;
  watchdog.reset();
  EXPECT_LT(stopwatch.seconds(), 4.0);
  EXPECT_EQ(operation->released.get_future().wait_for(0s), std::future_status::ready);
  EXPECT_EQ(comm->closes, 1);
  EXPECT_EQ(comm->aborts, 0);
}

TEST_F(Watchdog, AbortsWhatDoesNotEndWhileAnExceptionUnwinds) {
  const Stopwatch stopwatch;
  try {
    const auto watchdog = start();
    watchdog->watch(std::make_shared<PretendedOperation>());
    throw std::runtime_error("unwind");
  } catch (const std::runtime_error&) {
  }
  EXPECT_LT(stopwatch.seconds(), 4.0);
  EXPECT_EQ(comm->aborts, 1);
  EXPECT_EQ(comm->closes, 0);
}

TEST_F(Watchdog, HoldsTensorsOfALostLaunchUntilTheAbortHasReturned) {
  std::promise<void> free;
  comm->stuck = free.get_future().share();
  const auto watchdog = start();
  const auto operation = std::make_shared<PretendedOperation>();
  operation->is_lost = true;
  operation->ended = true;
  watchdog->watch(operation);
  watchdog->fail(std::make_exception_ptr(CommunicationError("the launch missed its deadline")));
  await_abort();
  auto released = operation->released.get_future();
  EXPECT_EQ(released.wait_for(300ms), std::future_status::timeout);
  free.set_value();
  EXPECT_EQ(released.wait_for(kMaxWait), std::future_status::ready);
}

TEST_F(Watchdog, LeavesTheCommunicatorIfThePeersDoNotClose) {
  auto watchdog = start();
  watchdog->leave_at_end();
  watchdog.reset();
  EXPECT_EQ(comm->leaves, 1);
  EXPECT_EQ(comm->closes + comm->aborts, 0);
}

TEST_F(Watchdog, FreesMemoryWhenNoStreamAndNoCollectiveUsesIt) {
  const auto watchdog = start();
  const auto operation = std::make_shared<PretendedOperation>();
  const auto unused = std::make_shared<std::atomic<bool>>(false);
  auto memory = std::make_shared<PretendedMemory>(unused);
  auto freed = memory->freed->get_future();
  watchdog->watch(operation);
  watchdog->retire()(std::move(memory));
  *unused = true;
  EXPECT_EQ(freed.wait_for(300ms), std::future_status::timeout) << "the collective may use it";
  *unused = false;
  operation->ended = true;
  EXPECT_EQ(freed.wait_for(300ms), std::future_status::timeout) << "the stream may use it";
  *unused = true;
  EXPECT_EQ(freed.wait_for(kMaxWait), std::future_status::ready);
}

TEST_F(Watchdog, FreesMemoryAtOnceWhenItIsGone) {
  auto watchdog = start();
  const auto retire = watchdog->retire();
  watchdog.reset();
  auto memory = std::make_shared<PretendedMemory>(std::make_shared<std::atomic<bool>>(true));
  auto freed = memory->freed->get_future();
  retire(std::move(memory));
  EXPECT_EQ(freed.wait_for(0s), std::future_status::ready);
}

TEST_F(Watchdog, LeavesAStuckLibraryBehind) {
  std::promise<void> free;
  comm->stuck = free.get_future().share();
  const Stopwatch stopwatch;
  try {
    const auto watchdog = start();
    watchdog->fail(std::make_exception_ptr(CommunicationError("enough")));
    throw std::runtime_error("unwind");
  } catch (const std::runtime_error&) {
  }
  EXPECT_GT(stopwatch.seconds(), 1.0);
  EXPECT_LT(stopwatch.seconds(), 15.0);
  EXPECT_EQ(comm->aborts, 1);
  free.set_value();
}

TEST_F(Watchdog, TellsNobodyOnceItIsGone) {
  std::promise<void> free;
  const auto operation = std::make_shared<PretendedOperation>(Deadline::after(1ms));
  operation->stuck = free.get_future().share();
  operation->broken = true;
  try {
    const auto watchdog = start([](const std::string&) { ADD_FAILURE() << "the owner no longer exists"; });
    watchdog->watch(operation);
    throw std::runtime_error("unwind");
  } catch (const std::runtime_error&) {
  }
  free.set_value();
  await_abort();
  EXPECT_THAT(reason(), HasSubstr("illegal memory access"));
}

}  // namespace
}  // namespace libtrain::detail
