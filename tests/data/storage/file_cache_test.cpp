#include <libtrain/data/storage/file_cache.hpp>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <latch>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/data/stage_clock.hpp>

#include <tests/data/storage/file_cache_fixture.hpp>
#include <tests/support/log_sinks.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

namespace fs = std::filesystem;
using test::CapturedLog;
using test::content_of;
using test::MemoryStorage;
using test::message_of;
using test::SilentLog;
using test::TemporaryFolder;
using test::write_file;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Waits until a thread of this process sleeps: the kernel has its state behind its name in parentheses.
void wait_until_asleep(pid_t thread) {
  const auto deadline = Deadline::after(std::chrono::seconds{20});
  while (!deadline.expired()) {
    const auto status = test::read_file("/proc/self/task/" + std::to_string(thread) + "/stat");
    if (status.compare(status.rfind(')'), 3, ") S") == 0) return;
    std::this_thread::yield();
  }
  ADD_FAILURE() << "the thread does not sleep";
}

class FileCacheTest : public test::FileCacheFixture {};

TEST_F(FileCacheTest, KeepsWhatItFetched) {
  const auto content = content_of(5000, 1);
  storage_.put("folder/a", content);
  FileCache cache(options());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(read(cache, "folder/a"), content);

  EXPECT_EQ(storage_.counts().opens, 1u);
  EXPECT_EQ(storage_.counts().bytes_read, 5000u);
  const auto statistics = cache.statistics();
  EXPECT_EQ(statistics.misses, 1u);
  EXPECT_EQ(statistics.hits, 2u);
  EXPECT_EQ(statistics.bypasses, 0u);
  EXPECT_EQ(statistics.fetched_files, 1u);
  EXPECT_EQ(statistics.fetched_bytes, 5000u);
  EXPECT_GT(statistics.seconds_waiting, 0.0);
  EXPECT_THAT(unfinished(), IsEmpty());
}

TEST_F(FileCacheTest, TellsTheClockOfTheThreadWhatWasThere) {
  put_small_files("abc");
  FileCache cache(options());
  fetch(cache, "b");
  StageClock clock;
  for (const char* name : {"a", "a", "b"}) open(cache, name);
  EXPECT_EQ(clock.counts().cache_hits, 2u);
  EXPECT_EQ(clock.counts().cache_misses, 1u);

  const SilentLog silence;
  FileCache without_room(options(0));
  open(without_room, "c");
  EXPECT_EQ(without_room.statistics().bypasses, 1u);
  EXPECT_EQ(clock.counts().cache_misses, 2u) << "what is read remotely counts as missing";
}

TEST_F(FileCacheTest, GivesFilesThatReadAsTheRemoteOnes) {
  const auto content = content_of(5000, 1);
  storage_.put("a", content);
  storage_.put("empty", "");
  FileCache cache(options());
  EXPECT_EQ(read(cache, "empty"), "");

  const auto file = open(cache, "a");
  EXPECT_EQ(file->name(), "memory://set/a");
  EXPECT_EQ(file->size(), 5000u);
  std::string part(10, '\0');
  file->read_at(4990, std::as_writable_bytes(std::span{part}));
  EXPECT_EQ(part, content.substr(4990));
  // Neither the trailer of the entry nor anything else lies behind the end.
  EXPECT_THAT(message_of<EnvironmentError>([&] { file->read_at(4991, std::as_writable_bytes(std::span{part})); }),
              AllOf(HasSubstr("memory://set/a"), HasSubstr("offset 4991"), HasSubstr("ends after 5000")));
  EXPECT_THROW(file->read_at(~std::uint64_t{0}, std::as_writable_bytes(std::span{part})), EnvironmentError);
}

TEST_F(FileCacheTest, ASecondRunFindsWhatTheFirstOneFetched) {
  put_small_files("ab");
  {
    FileCache first(options());
    read(first, "a");
  }
  FileCache second(options());
  EXPECT_EQ(read(second, "a"), content_of(1000, 'a'));
  EXPECT_EQ(second.statistics().hits, 1u);
  EXPECT_EQ(storage_.counts().opens, 1u);
}

TEST_F(FileCacheTest, TellsVersionsAndStoragesApart) {
  storage_.put("a", "first", "1");
  FileCache cache(options());
  EXPECT_EQ(read(cache, "a"), "first");
  storage_.put("a", "other", "2");
  EXPECT_EQ(read(cache, "a"), "other");

  MemoryStorage elsewhere("memory://elsewhere");
  elsewhere.put("a", "third", "2");
  const auto key = cache_key(elsewhere.name(), elsewhere.info("a"));
  EXPECT_EQ(read_all(*cache.open(elsewhere, "a", key), 100), "third");
  EXPECT_EQ(cache.statistics().misses, 3u);
}

TEST_F(FileCacheTest, KeysKeepTheirPartsApart) {
  const auto key = cache_key("ab", {.path = "c", .size = 1, .version = "d"});
  EXPECT_NE(key, cache_key("a", {.path = "bc", .size = 1, .version = "d"}));
  EXPECT_NE(key, cache_key("ab", {.path = "cd", .size = 1, .version = ""}));
  EXPECT_NE(key, cache_key("ab", {.path = "c", .size = 2, .version = "d"}));
  EXPECT_EQ(key, cache_key("ab", {.path = "c", .size = 1, .version = "d"}));
}

TEST_F(FileCacheTest, ThreadsFetchAFileOnce) {
  constexpr int threads = 8;
  const auto content = content_of(5000, 1);
  storage_.put("a", content);
  std::latch start{threads};
  FileCache cache(options());
  {
    std::vector<std::jthread> readers;
    for (int i = 0; i < threads; ++i) {
      readers.emplace_back([&] {
        start.arrive_and_wait();
        EXPECT_EQ(read(cache, "a"), content);
      });
    }
  }
  EXPECT_EQ(storage_.counts().bytes_read, 5000u);
  const auto statistics = cache.statistics();
  EXPECT_EQ(statistics.fetched_files, 1u);
  EXPECT_EQ(statistics.hits + statistics.misses, 8u);
}

TEST_F(FileCacheTest, ADamagedCopyIsThrownAwayAndFetchedAgain) {
  const auto content = content_of(5000, 1);
  storage_.put("a", content);
  const auto flip = [](std::fstream& file, std::streamoff offset) {
    file.seekg(offset);
    const char byte = static_cast<char>(file.get() ^ 0x10);
    file.seekp(offset);
    file.put(byte);
  };
  for (const std::streamoff offset : {0, 2500, 4999, 5000, 5020, 5063}) {
    {
      FileCache cache(options());
      read(cache, "a");
    }
    ASSERT_EQ(entries().size(), 1u);
    {
      std::fstream file(entries().front(), std::ios::in | std::ios::out | std::ios::binary);
      flip(file, offset);
    }
    const CapturedLog log;
    FileCache cache(options());
    EXPECT_EQ(read(cache, "a"), content) << offset;
    EXPECT_EQ(cache.statistics().damaged, 1u) << offset;
    EXPECT_EQ(cache.statistics().fetched_files, 1u) << offset;
    EXPECT_THAT(log.lines(), ElementsAre(AllOf(HasSubstr("memory://set/a"), HasSubstr("damaged")))) << offset;
    EXPECT_EQ(entries().size(), 1u);
  }
}

TEST_F(FileCacheTest, ACopyOfAnotherLengthIsThrownAwayEvenWhereItWasReadBefore) {
  const auto content = content_of(5000, 1);
  storage_.put("a", content);
  FileCache cache(options());
  for (const std::uintmax_t length : {0u, 100u, 5000u, 5063u, 5065u}) {
    read(cache, "a");
    fs::resize_file(entries().front(), length);
    const CapturedLog log;
    EXPECT_EQ(read(cache, "a"), content) << length;
    EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("bytes instead of 5064"))) << length;
  }
  EXPECT_EQ(cache.statistics().damaged, 5u);
}

TEST_F(FileCacheTest, ACopyThatIsCutShortWhileItIsOpenIsAnError) {
  storage_.put("a", content_of(5000, 1));
  FileCache cache(options());
  const auto file = open(cache, "a");
  fs::resize_file(entries().front(), 100);
  std::string part(10, '\0');
  EXPECT_THAT(message_of<EnvironmentError>([&] { file->read_at(95, std::as_writable_bytes(std::span{part})); }),
              AllOf(HasSubstr("memory://set/a"), HasSubstr("offset 95"), HasSubstr("truncated")));
}

TEST_F(FileCacheTest, AFailedDownloadLeavesNothing) {
  const auto content = content_of(5000, 1);
  storage_.put("a", content);
  storage_.fail_after("a", 2500);
  FileCache cache(options());
  EXPECT_THAT(message_of<EnvironmentError>([&] { read(cache, "a"); }),
              AllOf(HasSubstr("memory://set/a"), HasSubstr("offset 2000"), HasSubstr("connection was lost")));
  EXPECT_THROW(fetch(cache, "a"), EnvironmentError);
  EXPECT_THAT(unfinished(), IsEmpty());
  EXPECT_THAT(entries(), IsEmpty());
  storage_.heal("a");
  EXPECT_EQ(read(cache, "a"), content);
}

TEST_F(FileCacheTest, AFileThatIsNotTheOneOfTheKeyIsAnError) {
  storage_.put("a", content_of(5000, 1));
  storage_.put("b", content_of(5000, 2));
  const auto key = key_of("a");
  const auto deleted = key_of("b");
  FileCache cache(options());
  storage_.put("a", content_of(5000, 3), "2");
  storage_.remove("b");
  EXPECT_THAT(message_of<EnvironmentError>([&] { cache.open(storage_, "a", key); }),
              AllOf(HasSubstr("memory://set/a"), HasSubstr("changed")));
  EXPECT_THAT(message_of<EnvironmentError>([&] { cache.open(storage_, "b", deleted); }), HasSubstr("does not exist"));
  EXPECT_THAT(entries(), IsEmpty());
  EXPECT_THAT(unfinished(), IsEmpty());
}

TEST_F(FileCacheTest, AFileThatChangesDuringTheDownloadIsAnError) {
  storage_.put("a", content_of(5000, 1));
  storage_.before_read = [&](const std::string&, std::uint64_t offset) {
    if (offset == 2000) storage_.put("a", content_of(5000, 2), "2");
  };
  FileCache cache(options());
  EXPECT_THAT(message_of<EnvironmentError>([&] { read(cache, "a"); }), HasSubstr("changed since it was opened"));
  EXPECT_THAT(entries(), IsEmpty());
  storage_.before_read = {};
  EXPECT_EQ(read(cache, "a"), content_of(5000, 2));
}

TEST_F(FileCacheTest, AFileThatChangesAfterItsLastReadIsAnError) {
  storage_.put("a", content_of(5000, 1));
  auto watched = options();
  watched.write = [&](const detail::DiskFile& to, std::uint64_t offset, std::span<const std::byte> bytes) {
    if (offset == 4000) storage_.put("a", content_of(5000, 2), "2");
    return to.write(offset, bytes);
  };
  FileCache cache(watched);
  EXPECT_THAT(message_of<EnvironmentError>([&] { read(cache, "a"); }), HasSubstr("has changed since it was listed"));
  EXPECT_THAT(entries(), IsEmpty());
  EXPECT_THAT(unfinished(), IsEmpty());
}

TEST_F(FileCacheTest, AReaderThatWaitedForAFetchGetsTheFailureOfItsStorage) {
  storage_.put("a", content_of(5000, 1));
  std::latch reading{1};
  std::latch go{1};
  std::atomic<bool> has_begun = false;
  storage_.before_read = [&](const std::string&, std::uint64_t) {
    if (!has_begun.exchange(true)) reading.count_down();
    go.wait();
    throw StorageUnavailable("The store does not answer.");
  };
  FileCache cache(options());
  std::jthread fetcher([&] { EXPECT_THROW(fetch(cache, "a"), StorageUnavailable); });
  reading.wait();
  const auto key = key_of("a");
  std::latch started{1};
  std::atomic<pid_t> reader_id = 0;
  std::jthread reader([&] {
    reader_id = static_cast<pid_t>(syscall(SYS_gettid));
    started.count_down();
    EXPECT_THAT(message_of<StorageUnavailable>([&] { cache.open(storage_, "a", key); }), HasSubstr("does not answer"));
  });
  started.wait();
  wait_until_asleep(reader_id);
  go.count_down();
  fetcher.join();
  reader.join();
  EXPECT_EQ(storage_.counts().opens, 1u) << "the reader made no attempt of its own";
  EXPECT_THROW(cache.open(storage_, "a", key)->size(), StorageUnavailable);
  EXPECT_EQ(storage_.counts().opens, 2u) << "the next reader did";
}

TEST_F(FileCacheTest, AStopEndsAFetchBetweenTwoBlocks) {
  storage_.put("a", content_of(5000, 1));
  std::stop_source stop;
  storage_.before_read = [&](const std::string&, std::uint64_t offset) {
    if (offset == 2000) stop.request_stop();
  };
  FileCache cache(options());
  EXPECT_EQ(cache.fetch(storage_, "a", key_of("a"), stop.get_token()), FetchOutcome::stopped);
  EXPECT_EQ(storage_.counts().bytes_read, 3000u);
  EXPECT_THAT(unfinished(), IsEmpty());
}

TEST_F(FileCacheTest, FetchingAheadDoesNotWaitForOthers) {
  storage_.put("a", content_of(5000, 1));
  std::latch reading{1};
  std::latch go{1};
  storage_.before_read = [&](const std::string&, std::uint64_t offset) {
    if (offset != 2000) return;
    reading.count_down();
    go.wait();
  };
  FileCache cache(options());
  FileCache of_another_process(options());
  std::jthread reader([&] { read(cache, "a"); });
  reading.wait();
  EXPECT_EQ(fetch(cache, "a"), FetchOutcome::busy);
  EXPECT_EQ(fetch(of_another_process, "a"), FetchOutcome::busy);
  go.count_down();
  reader.join();
  EXPECT_EQ(fetch(of_another_process, "a"), FetchOutcome::hit);
}

TEST_F(FileCacheTest, RefusesWhatItCannotWorkWith) {
  EXPECT_THAT(message_of<UsageError>([] { FileCache cache(FileCacheOptions{}); }), HasSubstr("no directory"));
  auto without_blocks = options();
  without_blocks.block_bytes = 0;
  EXPECT_THAT(message_of<UsageError>([&] { FileCache cache(without_blocks); }), HasSubstr("block_bytes"));
  write_file(scratch_ / "file", "not a folder");
  auto in_a_file = options();
  in_a_file.directory = scratch_ / "file/cache";
  EXPECT_THAT(message_of<EnvironmentError>([&] { FileCache cache(in_a_file); }), HasSubstr("file/cache"));
}

TEST(CachedFile, IsNotToBlameForADiskThatFails) {
  // At address 0 there is no memory: the kernel says EIO.
  const detail::CachedFile file("remote/a", 10, detail::DiskFile::open("/proc/self/mem", O_RDONLY));
  std::array<std::byte, 4> bytes{};
  EXPECT_THAT(message_of<StorageUnavailable>([&] { file.read_at(0, bytes); }),
              AllOf(HasSubstr("'remote/a', byte offset 0"), HasSubstr("copy in the cache"), HasSubstr("Input/output")));
}

TEST(CachedFile, IsNotToBlameForACopyThatWasCutShort) {
  const TemporaryFolder folder;
  write_file(folder / "entry", "01234");
  const detail::CachedFile file("remote/a", 10, detail::DiskFile::open(folder / "entry", O_RDONLY));
  std::array<std::byte, 10> bytes{};
  EXPECT_THAT(message_of<StorageUnavailable>([&] { file.read_at(0, bytes); }), HasSubstr("it was truncated"));
}

}  // namespace
}  // namespace libtrain::data
