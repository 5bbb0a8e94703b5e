// A FileCache shared by processes that are killed or stopped, and on a disk that is full.

#include <libtrain/data/storage/file_cache.hpp>

#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/staging.hpp>

#include <tests/data/storage/cache_test_support.hpp>
#include <tests/data/storage/memory_storage.hpp>
#include <tests/support/log_sinks.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

namespace fs = std::filesystem;
using test::CapturedLog;
using test::Child;
using test::content_of;
using test::files_in;
using test::MemoryStorage;
using test::message_of;
using test::Signal;
using test::SilentLog;
using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t kMebibyte = 1 << 20;

std::string read_cached(FileCache& cache, const MemoryStorage& storage, const std::string& path) {
  const auto key = cache_key(storage.name(), storage.info(path));
  return read_all(*cache.open(storage, path, key), std::uint64_t{1} << 30);
}

class FileCacheProcesses : public ::testing::Test {
 protected:
  FileCacheProcesses() { storage_.put("a", content_); }

  FileCacheOptions options(std::uint64_t limit_bytes = kNoLimit) const {
    return {.directory = folder_,
            .limit_bytes = limit_bytes,
            .free_space_reserve_bytes = 0,
            .block_bytes = 1000,
            .fetch_timeout = std::chrono::seconds{20}};
  }

  // A process that fetches the file and is held up in the middle: see `reading_` and `go_`.
  std::unique_ptr<Child> start_held_up_reader() {
    return std::make_unique<Child>([this] {
      storage_.before_read = [this](const std::string&, std::uint64_t offset) {
        if (offset != 3000) return;
        reading_.give();
        go_.wait();
      };
      FileCache cache(options());
      EXPECT_EQ(read_cached(cache, storage_, "a"), content_);
      EXPECT_EQ(cache.statistics().fetched_files, 1u);
    });
  }

  // A process that opens the file once it has given `opening_`.
  std::unique_ptr<Child> start_reader(std::uint64_t expected_fetches) {
    return std::make_unique<Child>([this, expected_fetches] {
      FileCache cache(options());
      opening_.give();
      EXPECT_EQ(read_cached(cache, storage_, "a"), content_);
      EXPECT_EQ(cache.statistics().fetched_files, expected_fetches);
      EXPECT_EQ(cache.statistics().bypasses, 0u);
    });
  }

  const std::string content_ = content_of(8000, 1);
  const TemporaryFolder scratch_;
  const fs::path folder_ = scratch_ / "cache";
  MemoryStorage storage_;
  const Signal reading_;
  const Signal opening_;
  const Signal go_;
};

TEST_F(FileCacheProcesses, TwoAtOnceFetchAFileOnce) {
  const auto first = start_held_up_reader();
  reading_.wait();
  const auto second = start_reader(0);
  opening_.wait();
  go_.give();
  EXPECT_EQ(first->wait(), 0);
  EXPECT_EQ(second->wait(), 0);
  EXPECT_EQ(storage_.counts().opens, 1u);
  EXPECT_EQ(storage_.counts().bytes_read, 8000u);
}

TEST_F(FileCacheProcesses, WhereOneIsKilledInTheMiddleOfADownloadTheOtherGoesOn) {
  const auto first = start_held_up_reader();
  reading_.wait();
  EXPECT_EQ(files_in(folder_ / "fetching").size(), 1u);
  const auto second = start_reader(1);
  opening_.wait();
  first->kill();
  EXPECT_EQ(second->wait(), 0);
  EXPECT_EQ(storage_.counts().bytes_read, 3000u + 8000u);
  EXPECT_EQ(files_in(folder_ / "entries").size(), 1u);
  EXPECT_THAT(files_in(folder_ / "fetching"), IsEmpty());
}

TEST_F(FileCacheProcesses, WhatAKilledOneLeftIsRemovedAndItsSpaceGivenBack) {
  storage_.put("b", content_);
  storage_.put("c", content_);
  const auto first = start_held_up_reader();
  reading_.wait();
  first->kill();
  EXPECT_EQ(files_in(folder_ / "fetching").size(), 1u);

  constexpr std::uint64_t entry = 8192;  // 8000 bytes and a trailer of 64, in blocks of 4096
  FileCache cache(options(2 * entry));
  EXPECT_THAT(files_in(folder_ / "fetching"), IsEmpty());
  for (const char* name : {"b", "c"}) EXPECT_EQ(read_cached(cache, storage_, name), content_);
  EXPECT_EQ(cache.statistics().evictions, 0u);
  EXPECT_EQ(cache.statistics().bypasses, 0u);
}

TEST_F(FileCacheProcesses, OneThatWaitsTooLongReadsRemotely) {
  const auto first = start_held_up_reader();
  reading_.wait();
  Child second([this] {
    auto impatient = options();
    impatient.fetch_timeout = std::chrono::milliseconds{20};
    const CapturedLog log;
    FileCache cache(impatient);
    EXPECT_EQ(read_cached(cache, storage_, "a"), content_);
    EXPECT_EQ(cache.statistics().bypasses, 1u);
    EXPECT_THAT(log.lines(), ElementsAre(AllOf(HasSubstr("Another process"), HasSubstr("'a'"))));
  });
  EXPECT_EQ(second.wait(), 0);
  go_.give();
  EXPECT_EQ(first->wait(), 0);
}

TEST_F(FileCacheProcesses, AnEntryInUseByOneIsNotEvictedByAnother) {
  storage_.put("b", content_);
  Child holder([this] {
    FileCache cache(options());
    const auto file = cache.open(storage_, "a", cache_key(storage_.name(), storage_.info("a")));
    opening_.give();
    go_.wait();
    EXPECT_EQ(read_all(*file, 8000), content_);
  });
  opening_.wait();
  const SilentLog silence;
  FileCache cache(options(8192));
  EXPECT_EQ(read_cached(cache, storage_, "b"), content_);
  EXPECT_EQ(cache.statistics().bypasses, 1u);
  EXPECT_EQ(cache.statistics().evictions, 0u);
  go_.give();
  EXPECT_EQ(holder.wait(), 0);
}

// Room for 4 MiB at `folder`, seen by this process alone and gone with it. False where the kernel forbids that.
bool mount_small_disk(const fs::path& folder) {
  const auto user = getuid();
  const auto group = getgid();
  if (unshare(CLONE_NEWNS) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << text("0 ", user, " 1");
    std::ofstream("/proc/self/gid_map") << text("0 ", group, " 1");
  }
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  return mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=4m") == 0;
}

constexpr int kForbidden = 77;

// The exit code of a process that runs `body` where `folder` is a disk of 4 MiB.
int on_small_disk(const fs::path& folder, const std::function<void()>& body) {
  Child child([&] {
    if (!mount_small_disk(folder)) _exit(kForbidden);
    body();
  });
  return child.wait();
}

class FileCacheSmallDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    if (on_small_disk(scratch_.path(), [] {}) == kForbidden) {
      GTEST_SKIP() << "the kernel forbids this user to mount a small disk";
    }
  }

  FileCacheOptions options() const {
    return {.directory = scratch_ / "cache", .free_space_reserve_bytes = 0, .block_bytes = 256 << 10};
  }

  void put_files(const std::string& names) {
    for (const char name : names) storage_.put({name}, content_of(kMebibyte, static_cast<unsigned char>(name)));
  }

  // Fills what is left of the disk.
  void fill() const {
    std::ofstream ballast(scratch_ / "ballast", std::ios::binary);
    const std::string block(4096, 'x');
    while (ballast.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
  }

  const TemporaryFolder scratch_;
  MemoryStorage storage_;
};

TEST_F(FileCacheSmallDisk, EvictsWhatItMustAndReadsTheRestRemotely) {
  put_files("abcdef");
  storage_.put("large", content_of(5 * kMebibyte, 7));
  const int code = on_small_disk(scratch_.path(), [this] {
    const CapturedLog log;
    FileCache cache(options());
    for (const char* name : {"a", "b", "c", "d", "e", "f"}) {
      EXPECT_EQ(read_cached(cache, storage_, name), content_of(kMebibyte, static_cast<unsigned char>(*name)));
    }
    EXPECT_EQ(cache.statistics().misses, 6u);
    EXPECT_EQ(cache.statistics().evictions, 3u);  // three files of 1 MiB and their trailers fit
    EXPECT_THAT(log.lines(), IsEmpty());

    EXPECT_EQ(read_cached(cache, storage_, "large"), content_of(5 * kMebibyte, 7));
    EXPECT_EQ(cache.statistics().bypasses, 1u);
    EXPECT_EQ(log.lines().size(), 1u);
  });
  EXPECT_EQ(code, 0);
}

TEST_F(FileCacheSmallDisk, FilledByOthersTheDiskIsDoneWithout) {
  put_files("abcd");
  const int code = on_small_disk(scratch_.path(), [this] {
    const CapturedLog log;
    FileCache cache(options());
    const auto held = cache.open(storage_, "a", cache_key(storage_.name(), storage_.info("a")));
    fill();
    for (const char* name : {"b", "c", "d"}) {
      EXPECT_EQ(read_cached(cache, storage_, name), content_of(kMebibyte, static_cast<unsigned char>(*name)));
    }
    EXPECT_EQ(cache.statistics().bypasses, 3u);
    EXPECT_EQ(log.lines().size(), 1u);
    EXPECT_EQ(read_all(*held, kMebibyte), content_of(kMebibyte, 'a'));
  });
  EXPECT_EQ(code, 0);
}

TEST_F(FileCacheSmallDisk, ACacheThatIsMadeOnAFullDiskIsDoneWithout) {
  put_files("ab");
  const int code = on_small_disk(scratch_.path(), [this] {
    fill();
    const CapturedLog log;
    FileCache cache(options());
    for (const char* name : {"a", "b"}) {
      EXPECT_EQ(read_cached(cache, storage_, name), content_of(kMebibyte, static_cast<unsigned char>(*name)));
    }
    EXPECT_EQ(cache.statistics().bypasses, 2u);
    EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("No space left")));
  });
  EXPECT_EQ(code, 0);
}

TEST_F(FileCacheSmallDisk, StagingMoreThanFitsIsRefusedBeforeACopyIsMade) {
  put_files("abcde");
  const int code = on_small_disk(scratch_.path(), [this] {
    const auto copy = [this] { stage(storage_, "", scratch_ / "set", {.free_space_reserve_bytes = 0}); };
    EXPECT_THAT(message_of<EnvironmentError>(copy), AllOf(HasSubstr("needs 5242880 more bytes"), HasSubstr("cache")));
    EXPECT_EQ(storage_.counts().bytes_read, 0u);
  });
  EXPECT_EQ(code, 0);
}

TEST_F(FileCacheSmallDisk, ASetThatHasChangedIsStagedAgainWhereOneVersionOfItFits) {
  put_files("abc");
  const int code = on_small_disk(scratch_.path(), [this] {
    const StagingOptions one_by_one{.threads = 1, .free_space_reserve_bytes = 0};
    stage(storage_, "", scratch_ / "set", one_by_one);
    for (const char* name : {"a", "b", "c"}) storage_.put(name, content_of(kMebibyte, 100), "2");
    EXPECT_EQ(stage(storage_, "", scratch_ / "set", one_by_one).copied_files, 3u);
    EXPECT_EQ(test::read_file(scratch_ / "set/files/b"), content_of(kMebibyte, 100));
  });
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace libtrain::data
