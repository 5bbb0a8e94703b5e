// How a FileCache keeps within its limit and gets along with a disk that is full.

#include <libtrain/data/storage/file_cache.hpp>

#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/data/storage/cache_directory.hpp>
#include <libtrain/data/storage/content_hash.hpp>
#include <libtrain/data/storage/disk_file.hpp>

#include <tests/data/storage/file_cache_fixture.hpp>
#include <tests/support/log_sinks.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

namespace fs = std::filesystem;
using test::CapturedLog;
using test::content_of;
using test::kSmallEntry;
using test::read_file;
using test::SilentLog;
using test::write_file;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FileCacheSpace : public test::FileCacheFixture {
 protected:
  // What the account says of the bytes that are taken.
  std::uint64_t accounted() const {
    std::array<std::uint64_t, 2> numbers{};
    const auto bytes = read_file(folder_ / "account");
    if (bytes.size() == sizeof numbers) std::memcpy(numbers.data(), bytes.data(), sizeof numbers);
    return numbers[1];
  }

  static Deadline in_time() { return Deadline::after(std::chrono::seconds{20}); }

  static void book(const detail::CacheDirectory& directory, const detail::CacheClaim& claim) {
    detail::CacheAccount account(directory);
    claim.book(account);
  }
};

TEST_F(FileCacheSpace, BeyondItsLimitEvictsTheLeastRecentlyUsed) {
  put_small_files("abcde");
  FileCache cache(options(3 * kSmallEntry));
  for (const char* name : {"a", "b", "c", "a", "d"}) read(cache, name);
  EXPECT_EQ(kept(cache), "acd");
  read(cache, "e");
  EXPECT_EQ(kept(cache), "ade");
  EXPECT_EQ(cache.statistics().evictions, 2u);
  EXPECT_EQ(cache.statistics().evicted_bytes, 2 * kSmallEntry);

  FileCache smaller(options(kSmallEntry));
  put_small_files("f");
  read(smaller, "f");
  EXPECT_EQ(kept(smaller), "f");
}

TEST_F(FileCacheSpace, NeverEvictsWhatTheEpochStillNeeds) {
  put_small_files("abcd");
  FileCache cache(options(2 * kSmallEntry));
  expect(cache, "abca");
  EXPECT_EQ(fetch(cache, "a"), FetchOutcome::fetched);
  EXPECT_EQ(fetch(cache, "a"), FetchOutcome::hit);
  EXPECT_EQ(fetch(cache, "b"), FetchOutcome::fetched);
  EXPECT_EQ(fetch(cache, "c"), FetchOutcome::no_space);
  {
    const CapturedLog log;
    EXPECT_EQ(read(cache, "d"), content_of(1000, 'd'));
    EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("no space for 'd'")));
  }
  EXPECT_EQ(kept(cache), "ab");
  EXPECT_EQ(cache.statistics().bypasses, 1u);

  read_and_release(cache, "a");
  EXPECT_EQ(fetch(cache, "c"), FetchOutcome::no_space) << "a is read once more";
  read_and_release(cache, "b");
  EXPECT_EQ(fetch(cache, "c"), FetchOutcome::fetched);
  EXPECT_EQ(kept(cache), "ac");
  EXPECT_EQ(cache.statistics().evictions, 1u);
}

TEST_F(FileCacheSpace, KeepsWhatAnotherProcessExpectsOrHasUsedInTheEpoch) {
  put_small_files("abcd");
  FileCache mine(options(3 * kSmallEntry));
  FileCache of_another_process(options(3 * kSmallEntry));
  for (const char* name : {"a", "b", "c"}) read(of_another_process, name);
  // Of an earlier run.
  for (const auto& entry : entries()) {
    fs::last_write_time(entry, fs::file_time_type::clock::now() - std::chrono::hours{1});
  }
  expect(mine, "ad");
  expect(of_another_process, "bc");
  EXPECT_EQ(fetch(mine, "d"), FetchOutcome::no_space);
  read_and_release(of_another_process, "b");
  EXPECT_EQ(fetch(mine, "d"), FetchOutcome::no_space);
  read_and_release(mine, "a");
  EXPECT_EQ(fetch(mine, "d"), FetchOutcome::fetched);
  EXPECT_EQ(kept(mine), "bcd");
}

TEST_F(FileCacheSpace, EvictsInAnEpochWhatWasNotUsedInTheOneBefore) {
  put_small_files("abcdx");
  FileCache cache(options(3 * kSmallEntry));
  read(cache, "x");
  fs::last_write_time(entries().front(), fs::file_time_type::clock::now() - std::chrono::hours{1});
  expect(cache, "abc");
  read_and_release(cache, "abc");
  EXPECT_EQ(kept(cache), "abc");
  expect(cache, "d");
  EXPECT_EQ(fetch(cache, "d"), FetchOutcome::no_space);
  cache.release(key_of("d"));
  expect(cache, "d");
  EXPECT_EQ(fetch(cache, "d"), FetchOutcome::fetched);
  EXPECT_EQ(kept(cache), "bcd");
}

TEST_F(FileCacheSpace, AfterAnEpochEvictsWhatWasReleasedFirst) {
  put_small_files("abcd");
  FileCache cache(options(3 * kSmallEntry));
  expect(cache, "ab");
  read_and_release(cache, "ba");
  for (const char* name : {"c", "d"}) read(cache, name);
  EXPECT_EQ(kept(cache), "acd");
  read(cache, "b");
  EXPECT_EQ(kept(cache), "bcd");
  read(cache, "a");
  EXPECT_EQ(kept(cache), "abd") << "the least recently used one";
}

TEST_F(FileCacheSpace, EvictsNothingWhereAllThatMayGoIsNotEnough) {
  put_small_files("ab");
  storage_.put("large", content_of(5000, 1));
  FileCache cache(options(2 * kSmallEntry));
  expect(cache, "ab");
  read_and_release(cache, "b");
  read(cache, "a");
  EXPECT_EQ(fetch(cache, "large"), FetchOutcome::no_space);
  EXPECT_EQ(kept(cache), "ab");
  EXPECT_EQ(cache.statistics().evictions, 0u);
}

TEST_F(FileCacheSpace, WhatIsInUseStays) {
  put_small_files("abc");
  FileCache cache(options(2 * kSmallEntry));
  auto first = open(cache, "a");
  const auto second = open(cache, "b");
  const CapturedLog log;
  EXPECT_EQ(read(cache, "c"), content_of(1000, 'c'));
  EXPECT_EQ(kept(cache), "ab");
  EXPECT_EQ(cache.statistics().bypasses, 1u);
  EXPECT_THAT(log.lines(),
              ElementsAre(AllOf(HasSubstr("no space for 'c'"), HasSubstr("read from the remote storage"))));
  EXPECT_EQ(read_all(*first, 1000), content_of(1000, 'a'));

  first.reset();
  EXPECT_EQ(read(cache, "c"), content_of(1000, 'c'));
  EXPECT_EQ(kept(cache), "bc");
}

TEST_F(FileCacheSpace, AFileLargerThanTheLimitIsReadRemotely) {
  const auto content = content_of(5000, 1);
  storage_.put("large", content);
  put_small_files("a");
  const CapturedLog log;
  FileCache cache(options(kSmallEntry));
  read(cache, "a");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(read(cache, "large"), content);
  EXPECT_EQ(cache.statistics().bypasses, 3u);
  EXPECT_EQ(fetch(cache, "large"), FetchOutcome::refused);
  EXPECT_EQ(kept(cache), "a");
  EXPECT_EQ(log.lines().size(), 1u);
}

TEST_F(FileCacheSpace, LeavesTheDiskItsReserve) {
  put_small_files("ab");
  auto greedy = options();
  greedy.free_space_reserve_bytes = std::uint64_t{1} << 60;
  const CapturedLog log;
  FileCache cache(greedy);
  EXPECT_EQ(read(cache, "a"), content_of(1000, 'a'));
  EXPECT_EQ(read(cache, "b"), content_of(1000, 'b'));
  EXPECT_EQ(cache.statistics().bypasses, 2u);
  EXPECT_EQ(fetch(cache, "a"), FetchOutcome::refused);
  EXPECT_EQ(log.lines().size(), 1u);
  EXPECT_THAT(unfinished(), IsEmpty());
}

TEST_F(FileCacheSpace, OnADiskThatIsFullReadsRemotelyAndWarnsOnce) {
  const auto content = content_of(5000, 1);
  storage_.put("a", content);
  for (int blocks = 0; blocks < 5; ++blocks) {
    std::atomic<int> left = blocks;
    auto full = options(2 * kSmallEntry);
    full.write = [&left](const detail::DiskFile& to, std::uint64_t offset, std::span<const std::byte> bytes) {
      return left-- > 0 ? to.write(offset, bytes) : ENOSPC;
    };
    const CapturedLog log;
    FileCache cache(full);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(read(cache, "a"), content);
    EXPECT_EQ(cache.statistics().bypasses, 3u);
    EXPECT_THAT(log.lines(), ElementsAre(AllOf(HasSubstr("No space left"), HasSubstr("read from the remote storage"))));
    EXPECT_THAT(unfinished(), IsEmpty());
    EXPECT_THAT(entries(), IsEmpty());
    left = 100;
    // Whatever was booked was given back: the limit leaves room for just this one.
    EXPECT_EQ(read(cache, "a"), content);
    EXPECT_EQ(cache.statistics().misses, 1u);
    fs::remove_all(folder_);
  }
}

// A claim that cannot be resized, because it is open for reading only.
TEST_F(FileCacheSpace, AccountsForNothingWhereAClaimGetsNoLength) {
  const detail::CacheDirectory directory(folder_, 10 * kSmallEntry, 0);
  const CacheKey key{.hash = {.high = 1, .low = 2}, .size = 1000};
  const detail::CacheClaim claim(directory, key, directory.claim(key.hash, in_time(), {}));
  book(directory, claim);
  const auto booked = read_file(folder_ / "account");
  EXPECT_EQ(booked.substr(8), std::string("\x00\x10\0\0\0\0\0\0", 8)) << "4096, on a little-endian machine";

  const CacheKey other{.hash = {.high = 1, .low = 3}, .size = 5000};
  write_file(directory.fetching_path(other.hash), "");
  const detail::CacheClaim read_only(directory, other,
                                     detail::DiskFile::open(directory.fetching_path(other.hash), O_RDONLY));
  EXPECT_THROW(book(directory, read_only), detail::DiskError);
  EXPECT_EQ(read_file(folder_ / "account"), booked);
}

// Otherwise two processes count the same free space, and both fill it.
TEST_F(FileCacheSpace, TakesTheSpaceOfAClaimFromTheDiskWhenItIsBooked) {
  const detail::CacheDirectory directory(folder_, 100 * kSmallEntry, 0);
  const auto blocks_of = [](const detail::DiskFile& file) {
    struct stat status{};
    EXPECT_EQ(fstat(file.descriptor(), &status), 0);
    return static_cast<std::uint64_t>(status.st_blocks);
  };
  const auto probe = detail::open_to_write(folder_ / "probe");
  if (fallocate(probe.descriptor(), 0, 0, kSmallEntry) != 0 || blocks_of(probe) == 0) {
    GTEST_SKIP() << "this file system does not allocate in advance";
  }
  const CacheKey key{.hash = {.high = 1, .low = 2}, .size = 50'000};
  const detail::CacheClaim claim(directory, key, directory.claim(key.hash, in_time(), {}));
  book(directory, claim);
  EXPECT_GE(512 * blocks_of(claim.file()), key.size);
}

// With a limit far away, so that nothing is counted anew.
TEST_F(FileCacheSpace, AccountsForWhatIsThereAndNothingElse) {
  put_small_files("abc");
  storage_.put("large", content_of(5000, 1));
  const SilentLog silence;
  const detail::CacheDirectory directory(folder_, 100 * kSmallEntry, 0);
  const auto leave_claim_as_if_killed = [&](const ContentHash& key) {
    detail::CacheAccount account(directory);
    account.add(kSmallEntry);
    directory.claim(key, in_time(), {}).resize(1064);
  };
  FileCache cache(options(100 * kSmallEntry));
  for (const char* name : {"a", "b", "large"}) read(cache, name);
  EXPECT_EQ(accounted(), 4 * kSmallEntry);
  storage_.fail_after("c", 500);
  EXPECT_THROW(fetch(cache, "c"), EnvironmentError);
  EXPECT_EQ(accounted(), 4 * kSmallEntry) << "after a download that failed";
  storage_.heal("c");
  fs::resize_file(directory.entry_path(key_of("a").hash), 100);
  EXPECT_EQ(read(cache, "a"), content_of(1000, 'a'));
  EXPECT_EQ(accounted(), 4 * kSmallEntry) << "after a damaged copy was replaced";
  leave_claim_as_if_killed(key_of("c").hash);
  EXPECT_EQ(accounted(), 5 * kSmallEntry);
  EXPECT_EQ(read(cache, "c"), content_of(1000, 'c'));
  EXPECT_EQ(accounted(), 5 * kSmallEntry) << "after a claim was taken over";
  leave_claim_as_if_killed({.high = 1, .low = 2});
  EXPECT_EQ(accounted(), 6 * kSmallEntry);
  const FileCache next(options(100 * kSmallEntry));
  EXPECT_EQ(accounted(), 5 * kSmallEntry) << "after a claim was found at the start";
}

// An account that is too low lets the cache grow beyond its limit.
TEST_F(FileCacheSpace, NeverAccountsForTooLittleWhereACopyHasGrown) {
  put_small_files("abc");
  const SilentLog silence;
  FileCache cache(options(100 * kSmallEntry));
  for (const char* name : {"a", "b", "c"}) read(cache, name);
  fs::resize_file(detail::CacheDirectory(folder_, 0, 0).entry_path(key_of("a").hash), 100'000);
  EXPECT_EQ(read(cache, "a"), content_of(1000, 'a'));
  EXPECT_GE(accounted(), 3 * kSmallEntry);
}

TEST_F(FileCacheSpace, DiscardsADamagedEntryButNotTheOneThatTookItsPlace) {
  const detail::CacheDirectory directory(folder_, 10 * kSmallEntry, 0);
  const CacheKey key{.hash = {.high = 1, .low = 2}, .size = 7};
  const auto path = directory.entry_path(key.hash);
  write_file(path, "damaged");
  const auto damaged = directory.open_entry(key.hash);
  ASSERT_TRUE(damaged.is_open());
  fs::remove(path);
  write_file(path, "sound");
  directory.discard(damaged, key);
  EXPECT_EQ(read_file(path), "sound");
  directory.discard(directory.open_entry(key.hash), key);
  EXPECT_FALSE(directory.has(key.hash));
}

TEST_F(FileCacheSpace, RemovesAtStartWhatNobodyFetchesAnyMore) {
  put_small_files("a");
  FileCache{options()};
  const auto abandoned = folder_ / "fetching" / std::string(32, 'a');
  const auto in_work = folder_ / "fetching" / std::string(32, 'b');
  std::ofstream(abandoned) << "half";
  const auto owner = detail::DiskFile::open(in_work, O_RDWR | O_CREAT);
  ASSERT_TRUE(detail::try_lock(owner, detail::LockMode::exclusive));
  FileCache cache(options());
  EXPECT_THAT(unfinished(), ElementsAre(in_work.string()));
}

TEST_F(FileCacheSpace, KeepsItsLimitAlsoWhereTheAccountIsLost) {
  put_small_files("abcd");
  for (const auto& lost : {std::string{}, std::string{"nonsense"}, std::string(16, '\0')}) {
    {
      FileCache cache(options(2 * kSmallEntry));
      for (const char* name : {"a", "b"}) read(cache, name);
    }
    std::ofstream(folder_ / "account", std::ios::trunc) << lost;
    FileCache cache(options(2 * kSmallEntry));
    for (const char* name : {"c", "d"}) read(cache, name);
    EXPECT_EQ(kept(cache), "cd");
    fs::remove_all(folder_);
  }
}

TEST_F(FileCacheSpace, ManyThreadsInLittleSpaceReadWhatIsThere) {
  constexpr unsigned threads = 4;
  constexpr unsigned rounds = 100;
  put_small_files("abcdefghijkl");
  const SilentLog silence;  // four threads may hold all of the space
  FileCache cache(options(5 * kSmallEntry));
  {
    std::vector<std::jthread> readers;
    for (unsigned i = 0; i < threads; ++i) {
      readers.emplace_back([&, i] {
        for (unsigned round = 0; round < rounds; ++round) {
          const char name = static_cast<char>('a' + (round * (2 * i + 1) + round / 12) % 12);
          EXPECT_EQ(read(cache, {name}), content_of(1000, static_cast<unsigned char>(name)));
        }
      });
    }
  }
  EXPECT_LE(entries().size(), 5u);
  EXPECT_THAT(unfinished(), IsEmpty());
  const auto statistics = cache.statistics();
  EXPECT_EQ(statistics.hits + statistics.misses + statistics.bypasses, threads * rounds);
}

}  // namespace
}  // namespace libtrain::data
