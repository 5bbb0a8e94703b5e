// The barriers of ranks as threads: which rank waits for which if one of them fails.

#include <libtrain/comm/threads/detail/thread_group.hpp>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::detail {
namespace {

using ::testing::StartsWith;
using Section = ThreadGroup::Section;
using test::message_of;

constexpr std::chrono::seconds kLong{30};
// Long enough for a thread that may go on to have done so.
constexpr std::chrono::milliseconds kMoment{200};

Deadline late() {
  return Deadline::after(kLong);
}

Deadline expired() {
  return Deadline::after(std::chrono::milliseconds(0));
}

// What `body` returns, from a thread that a test need not wait for.
std::future<std::string> elsewhere(std::function<std::string()> body) {
  std::packaged_task<std::string()> task{std::move(body)};
  auto result = task.get_future();
  std::thread{std::move(task)}.detach();
  return result;
}

std::string soon(std::future<std::string>& result) {
  return result.wait_for(kLong) == std::future_status::ready ? result.get() : "still waiting";
}

// Rank 1 of a group of two opens a section, waits for `may_close`, and closes it: the reason of its failure.
std::future<std::string> rank_1_closes(const std::shared_ptr<ThreadGroup>& group, std::function<Deadline()> deadline,
                                       std::shared_future<void> may_close) {
  return elsewhere([=] {
    Section section{*group, 1, late()};
    may_close.wait_for(kLong);
    return message_of<CommunicationError>([&] { section.close(deadline()); });
  });
}

TEST(ThreadGroup, ARankThatClosesAfterAnAbortLeavesAfterThoseWhoCopy) {
  const auto group = std::make_shared<ThreadGroup>(2);
  std::promise<void> aborted;
  auto peer = rank_1_closes(group, late, aborted.get_future().share());
  {
    const Section copying{*group, 0, late()};
    group->abort("enough");
    aborted.set_value();
    EXPECT_EQ(peer.wait_for(kMoment), std::future_status::timeout);
  }
  EXPECT_EQ(soon(peer), "enough");
}

TEST(ThreadGroup, ARankWhoseDeadlinePassesAtItsCloseLeavesAfterThoseWhoCopy) {
  const auto group = std::make_shared<ThreadGroup>(2);
  std::promise<void> opened;
  auto peer = rank_1_closes(group, expired, opened.get_future().share());
  {
    Section copying{*group, 0, late()};
    opened.set_value();
    EXPECT_EQ(peer.wait_for(kMoment), std::future_status::timeout);
    // Too late for the peer, and throws; but it has left the section, so that the peer may continue.
    EXPECT_THAT(message_of<CommunicationError>([&] { copying.close(late()); }),
                StartsWith("rank 0 did not arrive before the deadline"));
  }
  EXPECT_THAT(soon(peer), StartsWith("rank 0 did not arrive before the deadline"));
}

TEST(ThreadGroup, ARankThatAnExceptionTakesOutOfTheSectionWaitsForThoseWhoRead) {
  const auto group = std::make_shared<ThreadGroup>(2);
  auto peer = elsewhere([=] {
    const Section left_by_an_exception{*group, 1, late()};
    return "left";
  });
  Section section{*group, 0, late()};
  // The memory that it has published may still be read.
  EXPECT_EQ(peer.wait_for(kMoment), std::future_status::timeout);
  EXPECT_THAT(message_of<CommunicationError>([&] { section.close(expired()); }),
              StartsWith("rank 1 did not arrive before the deadline"));
  EXPECT_EQ(soon(peer), "left");
}

TEST(ThreadGroup, TheDeadlineNamesAllWhoAreMissing) {
  ThreadGroup group{4};
  EXPECT_THAT(message_of<CommunicationError>([&] { Section{group, 2, expired()}; }),
              StartsWith("ranks 0, 1 and 3 did not arrive before the deadline"));
}

TEST(ThreadGroup, SectionsFollowEachOther) {
  const auto group = std::make_shared<ThreadGroup>(2);
  const auto walk = [group](int rank) {
    int peers_value = 0;
    for (int round = 1; round <= 100; ++round) {
      group->slot(rank).key = round;
      Section section{*group, rank, late()};
      if (group->slot(1 - rank).key == round) ++peers_value;
      section.close(late());
    }
    return std::to_string(peers_value);
  };
  auto peer = elsewhere([=] { return walk(1); });
  EXPECT_EQ(walk(0), "100");
  EXPECT_EQ(soon(peer), "100");
}

TEST(ThreadGroup, TheFirstFailureStays) {
  ThreadGroup aborted{2};
  aborted.abort("the first");
  aborted.abort("the second");
  EXPECT_EQ(message_of<CommunicationError>([&] { Section{aborted, 0, expired()}; }), "the first");

  ThreadGroup too_late{2};
  const auto come = [&](int rank) {
    return message_of<CommunicationError>([&] { Section{too_late, rank, expired()}; });
  };
  EXPECT_THAT(come(0), StartsWith("rank 1 did not arrive before the deadline"));
  too_late.abort("the second");
  EXPECT_THAT(come(1), StartsWith("rank 1 did not arrive before the deadline"));
}

}  // namespace
}  // namespace libtrain::detail
