// Processes of a node that stage together, some of which are killed or stand still.

#include <libtrain/data/storage/staging.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/storage/detail/local_storage.hpp>
#include <libtrain/data/storage/disk_file.hpp>

#include <tests/data/storage/cache_test_support.hpp>
#include <tests/data/storage/staging_fixture.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/sanitized.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

namespace fs = std::filesystem;
using test::Child;
using test::content_of;
using test::contents_of;
using test::message_of;
using test::Signal;
using ::testing::AllOf;
using ::testing::HasSubstr;

// One process copies the six files of the set, one by one, and is held up in the fourth; another one waits for it.
class StagingProcesses : public test::StagingFixture {
 protected:
  StagingProcesses() { put_files(6); }

  std::unique_ptr<Child> start_held_up_copier() {
    return std::make_unique<Child>([this] {
      storage_.before_read = [this](const std::string& path, std::uint64_t offset) {
        if (path != "train/3" || offset != 1000) return;
        copying_.give();
        go_.wait();
      };
      auto one_by_one = options();
      one_by_one.threads = 1;
      EXPECT_EQ(stage(storage_, "train", target_, one_by_one).copied_files, 6u);
    });
  }

  std::unique_ptr<Child> start_waiter(std::uint64_t expected_copies) {
    return std::make_unique<Child>([this, expected_copies] {
      bool has_waited = false;
      auto waiting = options();
      waiting.progress = [&](const StagingProgress& progress) {
        if (!has_waited) waiting_.give();
        has_waited = true;
        EXPECT_EQ(progress.files_total, 6u);
        EXPECT_GE(progress.files_done, 3u);
      };
      const auto result = stage(storage_, "train", target_, waiting);
      EXPECT_TRUE(has_waited);
      EXPECT_EQ(result.files, 6u);
      EXPECT_EQ(result.bytes, 6 * 2500u);
      EXPECT_EQ(result.copied_files, expected_copies);
      EXPECT_EQ(contents_of(result.folder), expected_);
    });
  }

  // One process has copied the set and syncs it to the disk until go_ is given, and for `longer`. Then it reads its
  // copy until go_ is given again.
  std::unique_ptr<Child> start_syncing_copier(std::chrono::milliseconds longer = {}) {
    return std::make_unique<Child>([this, longer] {
      auto syncing = options();
      syncing.threads = 1;
      syncing.sync = [&](const detail::DiskFile& on) {
        copying_.give();
        go_.wait();
        std::this_thread::sleep_for(longer);
        return detail::sync_file_system(on);
      };
      const auto reader = stage(storage_, "train", target_, syncing);
      go_.wait();
    });
  }

  StagingOptions telling_that_it_waits() const {
    auto waiting = options();
    waiting.progress = [this, has_waited = false](const StagingProgress&) mutable {
      if (!has_waited) waiting_.give();
      has_waited = true;
    };
    return waiting;
  }

  const Signal copying_;
  const Signal waiting_;
  const Signal go_;
};

TEST_F(StagingProcesses, OneCopiesAndTheOthersWait) {
  const auto copier = start_held_up_copier();
  copying_.wait();
  const auto first = start_waiter(0);
  const auto second = start_waiter(0);
  waiting_.wait();
  waiting_.wait();
  go_.give();
  EXPECT_EQ(copier->wait(), 0);
  EXPECT_EQ(first->wait(), 0);
  EXPECT_EQ(second->wait(), 0);
  EXPECT_EQ(storage_.counts().bytes_read, 6 * 2500u);
  EXPECT_EQ(storage_.counts().lists, 1u) << "those who waited need not list the files";
}

// A file that was copied already changes before the later run starts.
TEST_F(StagingProcesses, OneThatWaitsTakesNoCopyThatWasListedForAnEarlierRun) {
  const auto copier = start_syncing_copier();
  copying_.wait();
  put("train/0", content_of(2500, 100), "2");
  Child later([this] {
    auto waiting = telling_that_it_waits();
    waiting.start_spread = std::chrono::milliseconds{0};
    EXPECT_THAT(message_of<EnvironmentError>([&] { stage(storage_, "train", target_, waiting); }),
                AllOf(HasSubstr("differs from the copy"), HasSubstr("another run still reads that copy")));
  });
  waiting_.wait();
  go_.give();
  EXPECT_EQ(later.wait(), 0);
  go_.give();
  EXPECT_EQ(copier->wait(), 0);
  EXPECT_EQ(contents_of(stage_all().folder), expected_);
}

TEST_F(StagingProcesses, OneThatWaitsTakesNoOthersDataOfTheSameName) {
  const auto copier = start_held_up_copier();
  copying_.wait();
  Child waiter([this] {
    test::MemoryStorage other(storage_.name(), "another folder");
    other.put("train/0", "of another job");
    try {
      const auto result = stage(other, "train", target_, telling_that_it_waits());
      EXPECT_EQ(contents_of(result.folder), (test::Contents{{"0", "of another job"}}));
    } catch (const EnvironmentError& error) {
      // The copier holds its copy until it has ended.
      EXPECT_THAT(error.what(), HasSubstr("another run still reads that copy"));
    }
  });
  waiting_.wait();
  go_.give();
  EXPECT_EQ(copier->wait(), 0);
  EXPECT_EQ(waiter.wait(), 0);
}

// As on two nodes that share the folder for copies, each of which has a disk of its own at the path of the data.
TEST_F(StagingProcesses, OneThatWaitsTakesNoCopyOfAnotherFolderOfTheSamePath) {
  const auto data = scratch_ / "data";
  fs::create_directory(data);
  test::write_file(data + "/x", "of one node");
  Child copier([&] {
    auto held_up = options();
    held_up.sync = [&](const detail::DiskFile& on) {
      copying_.give();
      go_.wait();
      return detail::sync_file_system(on);
    };
    const auto reader = stage(detail::LocalStorage{data}, "", target_, held_up);
    go_.wait();
    EXPECT_EQ(contents_of(reader.folder).at("x"), "of one node");
  });
  copying_.wait();
  fs::rename(data, scratch_ / "data of one node");
  fs::create_directory(data);
  test::write_file(data + "/x", "of another");
  Child waiter([&] {
    EXPECT_THAT(
        message_of<EnvironmentError>([&] { stage(detail::LocalStorage{data}, "", target_, telling_that_it_waits()); }),
        AllOf(HasSubstr("'" + data + "' differs from the copy"), HasSubstr("another run still reads")));
  });
  waiting_.wait();
  go_.give();
  EXPECT_EQ(waiter.wait(), 0);
  go_.give();
  EXPECT_EQ(copier.wait(), 0);
  EXPECT_EQ(contents_of(stage(detail::LocalStorage{data}, "", target_, options()).folder).at("x"), "of another");
}

// As with a network's folder, which each machine knows by another number.
TEST_F(StagingProcesses, OneThatWaitsTakesTheCopyOfAnotherMachineIfItHoldsTheSameFiles) {
  struct OnAnotherMachine : test::MemoryStorage {
    std::string local_identity() const override { return "another machine"; }
  };
  const auto copier = start_held_up_copier();
  copying_.wait();
  Child waiter([this] {
    OnAnotherMachine same;
    for (const auto& [path, bytes] : expected_) same.put("train/" + path, bytes);
    EXPECT_EQ(stage(same, "train", target_, telling_that_it_waits()).copied_files, 0u);
    EXPECT_EQ(same.counts().lists, 1u);
    EXPECT_EQ(contents_of(target_ / "files"), expected_);
  });
  waiting_.wait();
  go_.give();
  EXPECT_EQ(copier->wait(), 0);
  EXPECT_EQ(waiter.wait(), 0);
}

TEST_F(StagingProcesses, AWaitingOneTakesOverFromACopierThatIsKilled) {
  if (libtrain::test::kThreadSanitized) GTEST_SKIP() << "the waiting process would start threads";
  const auto copier = start_held_up_copier();
  copying_.wait();
  const auto waiter = start_waiter(3);
  waiting_.wait();
  copier->kill();
  EXPECT_EQ(waiter->wait(), 0);
  EXPECT_EQ(storage_.counts().bytes_read, 3 * 2500u + 1000u + 3 * 2500u) << "complete files are not copied again";
}

TEST_F(StagingProcesses, TheNextRunGoesOnWhereACopierWasKilled) {
  const auto copier = start_held_up_copier();
  copying_.wait();
  copier->kill();
  EXPECT_FALSE(fs::exists(target_ / "manifest"));
  const auto result = stage_all();
  EXPECT_EQ(result.copied_files, 3u);
  EXPECT_EQ(contents_of(result.folder), expected_);
}

TEST_F(StagingProcesses, ACopierThatStandsStillIsReported) {
  const auto copier = start_held_up_copier();
  copying_.wait();
  auto impatient = options();
  impatient.stall_timeout = std::chrono::milliseconds{20};
  EXPECT_THAT(message_of<EnvironmentError>([&] { stage(storage_, "train", target_, impatient); }),
              AllOf(HasSubstr("copied nothing for 20 ms"), HasSubstr("3 of 6 files")));
  go_.give();
  EXPECT_EQ(copier->wait(), 0);
}

TEST_F(StagingProcesses, ACopierThatSyncsForLongIsNotReported) {
  const auto copier = start_syncing_copier(std::chrono::seconds{1});
  copying_.wait();
  Child waiter([this] {
    auto impatient = telling_that_it_waits();
    impatient.stall_timeout = std::chrono::milliseconds{300};
    EXPECT_EQ(stage(storage_, "train", target_, impatient).copied_files, 0u);
  });
  waiting_.wait();
  go_.give();
  EXPECT_EQ(waiter.wait(), 0);
  go_.give();
  EXPECT_EQ(copier->wait(), 0);
}

TEST_F(StagingProcesses, ACopierThatSyncsForTooLongIsReported) {
  const auto copier = start_syncing_copier();
  copying_.wait();
  auto impatient = options();
  impatient.sync_timeout = std::chrono::milliseconds{20};
  EXPECT_THAT(message_of<EnvironmentError>([&] { stage(storage_, "train", target_, impatient); }),
              HasSubstr("has been writing them to the disk for 20 ms"));
  go_.give();
  go_.give();
  EXPECT_EQ(copier->wait(), 0);
}

TEST_F(StagingProcesses, ACopierThatListsForTooLongIsReportedAndNotWhatAnEarlierOneLeft) {
  stage_all();
  Child copier([this] {
    storage_.before_list = [this] {
      copying_.give();
      go_.wait();
    };
    EXPECT_EQ(stage_all().copied_files, 0u);
  });
  copying_.wait();
  StagingProgress told{.files_total = 1};
  auto impatient = options();
  impatient.stall_timeout = std::chrono::milliseconds{10};
  impatient.list_timeout = std::chrono::milliseconds{200};
  impatient.progress = [&](const StagingProgress& progress) { told = progress; };
  EXPECT_THAT(message_of<EnvironmentError>([&] { stage(storage_, "train", target_, impatient); }),
              AllOf(HasSubstr("Process " + std::to_string(copier.id()) + " "), HasSubstr("listing them for 200 ms")));
  EXPECT_EQ(told, StagingProgress{.copier = copier.id()});
  go_.give();
  EXPECT_EQ(copier.wait(), 0);
}

}  // namespace
}  // namespace libtrain::data
