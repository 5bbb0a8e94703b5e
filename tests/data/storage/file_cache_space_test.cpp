// How a FileCache keeps within its limit and gets along with a disk that is full.

#include <libtrain/data/storage/file_cache.hpp>

#include <fcntl.h>

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
#include <libtrain/data/storage/cache_space.hpp>
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
};

TEST(EvictionOrder, BeginsWithTheFurthestUseThenTheOldestAndSparesWhatIsNeededBefore) {
  // The number of an entry is the position of its next use; from 10 on there is none.
  const auto next_use = [](const ContentHash& key) { return key.low < 10 ? key.low : kNeverUsed; };
  const auto entry = [](std::uint64_t number, std::int64_t last_used) {
    return detail::StoredEntry{.key = {.high = 0, .low = number}, .bytes = 1, .last_used = last_used};
  };
  const std::vector<detail::StoredEntry> entries{entry(0, 1),  entry(4, 2),  entry(11, 7), entry(5, 3),
                                                 entry(12, 6), entry(13, 6), entry(6, 4)};
  const auto numbers = [&](std::uint64_t needed_at) {
    std::vector<std::uint64_t> order;
    for (const auto& each : detail::eviction_order(entries, next_use, needed_at)) order.push_back(each.key.low);
    return order;
  };
  EXPECT_THAT(numbers(0), ElementsAre(12, 13, 11, 6, 5, 4, 0));
  EXPECT_THAT(numbers(5), ElementsAre(12, 13, 11, 6, 5));
  EXPECT_THAT(numbers(kNeverUsed), ElementsAre(12, 13, 11));
}

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

TEST_F(FileCacheSpace, EvictsWhatIsNeededLast) {
  put_small_files("abcdef");
  FileCache cache(options(3 * kSmallEntry));
  for (const char* name : {"a", "b", "c"}) read(cache, name);
  cache.expect(key_of("a"), 10);
  cache.expect(key_of("b"), 30);
  cache.expect(key_of("c"), 20);
  cache.expect(key_of("d"), 15);
  read(cache, "d");
  EXPECT_EQ(kept(cache), "acd");
  read(cache, "e");  // nothing is known of it, so that it goes before what is expected
  EXPECT_EQ(kept(cache), "ade");
  read(cache, "f");
  EXPECT_EQ(kept(cache), "adf");
  cache.expect(key_of("a"), kNeverUsed);
  read(cache, "f");
  read(cache, "e");
  EXPECT_EQ(kept(cache), "def");
}

TEST_F(FileCacheSpace, FetchingAheadEvictsNothingThatIsNeededBefore) {
  put_small_files("abcd");
  FileCache cache(options(2 * kSmallEntry));
  cache.expect(key_of("a"), 5);
  cache.expect(key_of("b"), 7);
  cache.expect(key_of("c"), 6);
  EXPECT_EQ(fetch(cache, "a", 5), FetchOutcome::fetched);
  EXPECT_EQ(fetch(cache, "a", 5), FetchOutcome::local);
  EXPECT_EQ(fetch(cache, "b", 7), FetchOutcome::fetched);
  EXPECT_EQ(fetch(cache, "d", 9), FetchOutcome::no_room);
  EXPECT_EQ(kept(cache), "ab");
  EXPECT_EQ(fetch(cache, "c", 6), FetchOutcome::fetched);
  EXPECT_EQ(kept(cache), "ac");
  EXPECT_EQ(read(cache, "c"), content_of(1000, 'c'));
  EXPECT_EQ(cache.statistics().hits, 1u);
}

TEST_F(FileCacheSpace, EvictsNothingWhereAllThatMayGoIsNotEnough) {
  put_small_files("ab");
  storage_.put("large", content_of(5000, 1));
  FileCache cache(options(2 * kSmallEntry));
  for (const char* name : {"a", "b"}) read(cache, name);
  cache.expect(key_of("a"), 5);
  cache.expect(key_of("b"), 20);
  EXPECT_EQ(fetch(cache, "large", 10), FetchOutcome::no_room);
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
  EXPECT_THAT(log.lines(), ElementsAre(AllOf(HasSubstr("no room for 'c'"), HasSubstr("read remotely"))));
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
  EXPECT_EQ(cache.capacity_bytes(), 0u);
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
    EXPECT_THAT(log.lines(), ElementsAre(AllOf(HasSubstr("No space left"), HasSubstr("read remotely"))));
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
  const detail::CacheDirectory directory(folder_);
  detail::CacheSpace space(directory, 10 * kSmallEntry, 0);
  const auto never = [](const ContentHash&) { return kNeverUsed; };
  const auto claim = directory.claim({.high = 1, .low = 2}, Deadline::after(std::chrono::seconds{20}), {});
  EXPECT_TRUE(space.book(claim, 1000, never, 0));
  const auto booked = read_file(folder_ / "account");
  EXPECT_EQ(booked.substr(8), std::string("\x00\x10\0\0\0\0\0\0", 8)) << "4096, on a little-endian machine";

  const auto read_only = detail::DiskFile::open(claim.path(), O_RDONLY);
  EXPECT_THROW(space.book(read_only, 5000, never, 0), detail::DiskError);
  EXPECT_EQ(read_file(folder_ / "account"), booked);
}

// With a limit far away, so that nothing is counted anew.
TEST_F(FileCacheSpace, AccountsForWhatIsThereAndNothingElse) {
  put_small_files("abc");
  storage_.put("large", content_of(5000, 1));
  const SilentLog silence;
  const detail::CacheDirectory directory(folder_);
  const auto leave_claim_as_if_killed = [&](const ContentHash& key) {
    detail::CacheSpace space(directory, 100 * kSmallEntry, 0);
    const auto claim = directory.claim(key, Deadline::after(std::chrono::seconds{20}), {});
    EXPECT_TRUE(space.book(claim, 1000, [](const ContentHash&) { return kNeverUsed; }, 0));
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
  fs::resize_file(detail::CacheDirectory(folder_).entry_path(key_of("a").hash), 100'000);
  EXPECT_EQ(read(cache, "a"), content_of(1000, 'a'));
  EXPECT_GE(accounted(), 3 * kSmallEntry);
}

TEST_F(FileCacheSpace, DiscardsADamagedEntryButNotTheOneThatTookItsPlace) {
  const detail::CacheDirectory directory(folder_);
  const detail::CacheSpace space(directory, 10 * kSmallEntry, 0);
  const CacheKey key{.hash = {.high = 1, .low = 2}, .size = 7};
  const auto path = directory.entry_path(key.hash);
  write_file(path, "damaged");
  const auto damaged = directory.open_entry(key.hash);
  ASSERT_TRUE(damaged.is_open());
  fs::remove(path);
  write_file(path, "sound");
  space.discard(damaged, key);
  EXPECT_EQ(read_file(path), "sound");
  space.discard(directory.open_entry(key.hash), key);
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
