#include <libtrain/checkpoint/detail/rank_entries.hpp>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <ranges>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::detail {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

class RankEntries : public ::testing::Test {
 protected:
  RankEntries() { std::filesystem::create_directory(root_ / begun_); }

  std::vector<CheckpointFile> collect(int world_size) {
    return collect_entries(root_, begun_, world_size, stop_.get_token());
  }

  // Of the begun checkpoint's folder.
  std::ptrdiff_t entries() const { return std::ranges::distance(std::filesystem::directory_iterator(root_ / begun_)); }

  const test::TemporaryFolder folder_;
  const std::filesystem::path root_ = folder_.path();
  const std::string begun_ = "begun";
  std::stop_source stop_;
};

TEST_F(RankEntries, AreThoseOfAllRanksAndLeaveNoFiles) {
  const CheckpointFile first{.name = "first", .bytes = 7, .crc32c = 3};
  const CheckpointFile second{.name = "second", .bytes = 8, .tensors = {{.name = "tensor", .bytes = 8, .crc32c = 2}}};
  leave_entries(root_, begun_, 2, {second});
  std::thread later([&] { leave_entries(root_, begun_, 1, {first}); });
  EXPECT_EQ(collect(3), (std::vector{first, second}));
  later.join();
  EXPECT_TRUE(std::filesystem::is_empty(root_ / begun_));
  EXPECT_EQ(collect(1), std::vector<CheckpointFile>{});
}

TEST_F(RankEntries, TellWhyARankHasFailed) {
  leave_entries(root_, begun_, 1, {});
  EXPECT_TRUE(leave_failure(root_, begun_, 2, "The disk is full."));
  EXPECT_THAT(message_of<EnvironmentError>([&] { collect(3); }), HasSubstr("Rank 2: The disk is full."));
  std::ofstream{root_ / begun_ / "rank-1.failed"};  // whose reason did not fit on the disk
  EXPECT_THAT(message_of<EnvironmentError>([&] { collect(3); }), HasSubstr("Rank 1 cannot write its files"));
}

TEST_F(RankEntries, AreAwaitedUntilAStopIsRequested) {
  std::thread later([&] { stop_.request_stop(); });
  EXPECT_THAT(message_of<EnvironmentError>([&] { collect(2); }), AllOf(HasSubstr("lacks"), HasSubstr("rank 1")));
  later.join();
}

// With the disk of all ranks full, rank 0 removes the folder while the others fail.
TEST_F(RankEntries, ACheckpointThatIsBeingAbandonedNeedsNoFailure) {
  std::filesystem::create_directories(root_ / begun_ / "rank-1.failed" / "in the way");  // so that the rename fails
  std::thread rank_0([&] {
    for (int waited_ms = 0; waited_ms < 500 && entries() < 2; ++waited_ms) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::error_code meanwhile;  // rank 1 writes into it
    while (std::filesystem::exists(root_ / begun_)) std::filesystem::remove_all(root_ / begun_, meanwhile);
  });
  EXPECT_TRUE(leave_failure(root_, begun_, 1, "The disk is full."));
  rank_0.join();
  std::filesystem::remove_all(root_ / begun_);
}

TEST_F(RankEntries, ACheckpointThatRankZeroHasAbandonedNeedsNoFailure) {
  EXPECT_TRUE(leave_failure(root_, "abandoned", 1, "The folder is gone."));
  EXPECT_FALSE(leave_failure(root_ / "unmounted", begun_, 1, "The folder is gone."));
}

}  // namespace
}  // namespace libtrain::detail
