#include <libtrain/data/storage/prefetcher.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <latch>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/data/storage/detail/stop_scope.hpp>
#include <libtrain/data/storage/retry.hpp>

#include <tests/data/storage/cache_test_support.hpp>
#include <tests/data/storage/memory_storage.hpp>
#include <tests/support/log_sinks.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

using test::content_of;
using test::files_in;
using test::MemoryStorage;
using test::message_of;
using test::SilentLog;
using test::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kEntry = 4096;  // what a file of 1000 bytes takes of the cache

class PrefetcherTest : public ::testing::Test {
 protected:
  // Makes the files named by the letters of `order`, of 1000 bytes, and a cache with room for so many.
  void prepare(const std::string& order, std::uint64_t files_in_cache) {
    order_ = order;
    for (const char name : order) remote_->put({name}, content_of(1000, static_cast<unsigned char>(name)));
    storage_ = make_storage(files_in_cache);
    storage_->list("");
  }

  std::shared_ptr<CachedStorage> make_storage(std::uint64_t files_in_cache) const {
    const FileCacheOptions options{.directory = scratch_ / "cache",
                                   .limit_bytes = files_in_cache * kEntry,
                                   .free_space_reserve_bytes = 0,
                                   .block_bytes = 100};
    return std::make_shared<CachedStorage>(remote_, std::make_shared<FileCache>(options));
  }

  std::vector<std::string> order() const {
    std::vector<std::string> paths;
    for (const char name : order_) paths.push_back({name});
    return paths;
  }

  // The files that have a copy, in the order of the alphabet.
  std::string kept() const {
    std::string names;
    for (const auto& file : remote_->list("")) {
      if (storage_->cache().contains(cache_key(remote_->name(), file))) names += file.path;
    }
    return names;
  }

  static void wait_for(Prefetcher& prefetcher) {
    EXPECT_TRUE(prefetcher.wait_until_idle(Deadline::after(std::chrono::seconds{20})));
  }

  void read(char name) const {
    const auto file = storage_->open({name});
    EXPECT_EQ(read_all(*file, 1000), content_of(1000, static_cast<unsigned char>(name)));
  }

  const TemporaryFolder scratch_;
  const std::shared_ptr<MemoryStorage> remote_ = std::make_shared<MemoryStorage>();
  std::string order_;
  std::shared_ptr<CachedStorage> storage_;
};

TEST_F(PrefetcherTest, StaysSoManyFilesAhead) {
  prepare("abcdefgh", 100);
  Prefetcher prefetcher(storage_, order(), {.threads = 2, .files_ahead = 3});
  wait_for(prefetcher);
  EXPECT_EQ(kept(), "abc");
  prefetcher.advance(2);
  wait_for(prefetcher);
  EXPECT_EQ(kept(), "abcde");
  prefetcher.advance(1);  // going back is ignored
  wait_for(prefetcher);
  EXPECT_EQ(kept(), "abcde");
  prefetcher.advance(1000);
  wait_for(prefetcher);
  EXPECT_EQ(kept(), "abcde") << "what was passed is not fetched any more";
  EXPECT_EQ(storage_->cache().statistics().fetched_files, 5u);
}

TEST_F(PrefetcherTest, StaysSoManyBytesAhead) {
  prepare("abcdefgh", 100);
  Prefetcher prefetcher(storage_, order(), {.threads = 1, .bytes_ahead = 2 * kEntry});
  wait_for(prefetcher);
  EXPECT_EQ(kept(), "ab");
  prefetcher.advance(1);
  wait_for(prefetcher);
  EXPECT_EQ(kept(), "abc");
}

// An epoch finds all that the one before has left, and has the rest fetched in the place of what it has read.
TEST_F(PrefetcherTest, InACacheTooSmallForAllFetchesNothingTwiceInAnEpoch) {
  prepare("abcdefghijkl", 4);
  for (const char* order_of_epoch : {"abcdefghijkl", "lakbjcidhegf", "hefgabcdijkl"}) {
    order_ = order_of_epoch;
    Prefetcher prefetcher(storage_, order(), {.threads = 1, .files_ahead = 2});
    for (std::uint64_t position = 0; position < order_.size(); ++position) {
      wait_for(prefetcher);
      read(order_[position]);
      prefetcher.advance(position + 1);
    }
    EXPECT_EQ(kept().size(), 4u);
  }
  const auto statistics = storage_->cache().statistics();
  EXPECT_EQ(statistics.hits, 3u * 12u);
  EXPECT_EQ(statistics.fetched_files, 12u + 8u + 8u);
  EXPECT_EQ(remote_->counts().opens, 12u + 8u + 8u);
}

// Each epoch shares the files out anew, as a sampler does.
TEST_F(PrefetcherTest, RanksEvictNothingThatOneOfThemStillReads) {
  constexpr std::size_t files_of_rank = 6;
  prepare("abcdefghijkl", 5);
  const auto of_another_rank = make_storage(5);
  of_another_rank->list("");
  const SilentLog silence;
  std::mutex mutex;
  std::string fetched;
  remote_->before_read = [&](const std::string& path, std::uint64_t offset) {
    const std::lock_guard lock(mutex);
    if (offset == 0) fetched += path;
  };
  for (const std::string epoch : {"abcdefghijkl", "gbkdifahcjel", "lkjihgfedcba", "cglbhadkiefj"}) {
    const std::string at_first = kept();
    fetched.clear();
    order_ = epoch.substr(0, files_of_rank);
    Prefetcher first(storage_, order(), {.threads = 2, .files_ahead = 2});
    order_ = epoch.substr(files_of_rank);
    Prefetcher second(of_another_rank, order(), {.threads = 2, .files_ahead = 2});
    for (std::size_t position = 0; position < files_of_rank; ++position) {
      wait_for(first);
      wait_for(second);
      read(epoch[position]);
      first.advance(position + 1);
      const auto file = of_another_rank->open({epoch[files_of_rank + position]});
      read_all(*file, 1000);
      second.advance(position + 1);
    }
    EXPECT_EQ(fetched.find_first_of(at_first), std::string::npos) << at_first << " were there, fetched: " << fetched;
    EXPECT_EQ(fetched.size() + at_first.size(), epoch.size());
    EXPECT_EQ(kept().size(), 5u);
  }
}

TEST_F(PrefetcherTest, WaitsForRoomAndLeavesWhatNeverHasAny) {
  prepare("abc", 1);
  remote_->put("b", content_of(10'000, 'b'));
  storage_->list("");
  Prefetcher prefetcher(storage_, order(), {.threads = 1});
  wait_for(prefetcher);
  EXPECT_EQ(kept(), "a");
  prefetcher.advance(1);
  wait_for(prefetcher);
  EXPECT_EQ(kept(), "c");
  EXPECT_EQ(storage_->cache().statistics().fetched_files, 2u);
  EXPECT_EQ(remote_->counts().opens, 2u);
}

TEST_F(PrefetcherTest, SeveralThreadsAndAReaderInHasteGetAlongInASmallCache) {
  prepare("abcdefghijklabcdefghijklabcdefghijkl", 4);
  const SilentLog silence;
  Prefetcher prefetcher(storage_, order(), {.threads = 3, .files_ahead = 4});
  for (std::uint64_t position = 0; position < order_.size(); ++position) {
    read(order_[position]);
    prefetcher.advance(position + 1);
  }
  EXPECT_LE(files_in(scratch_ / "cache/entries").size(), 4u);
}

TEST_F(PrefetcherTest, DoesNotFetchWhatIsThere) {
  prepare("abc", 100);
  read('b');
  Prefetcher prefetcher(storage_, order());
  wait_for(prefetcher);
  EXPECT_EQ(kept(), "abc");
  EXPECT_EQ(storage_->cache().statistics().fetched_files, 3u);
  EXPECT_EQ(remote_->counts().opens, 3u);
}

TEST_F(PrefetcherTest, TwoOfThemShareTheWork) {
  prepare("abcdefghijklmnop", 100);
  const auto of_another_process = make_storage(100);
  of_another_process->list("");
  Prefetcher first(storage_, order());
  Prefetcher second(of_another_process, order());
  wait_for(first);
  wait_for(second);
  EXPECT_EQ(kept(), order_);
  EXPECT_EQ(remote_->counts().bytes_read, 16'000u);
  EXPECT_EQ(storage_->cache().statistics().fetched_files + of_another_process->cache().statistics().fetched_files, 16u);
}

TEST_F(PrefetcherTest, LeavesErrorsToTheReader) {
  prepare("abcd", 100);
  remote_->fail_after("b", 500);
  remote_->remove("c");
  Prefetcher prefetcher(storage_, order());
  wait_for(prefetcher);
  EXPECT_EQ(storage_->cache().statistics().fetched_files, 2u);
  EXPECT_THAT(message_of<EnvironmentError>([&] { read('b'); }), HasSubstr("connection was lost"));
  EXPECT_THAT(message_of<EnvironmentError>([&] { read('c'); }), HasSubstr("memory://set/c"));
}

TEST_F(PrefetcherTest, StopsInTheMiddleOfADownload) {
  prepare("ab", 100);
  std::latch reading{1};
  std::latch go{1};
  remote_->before_read = [&](const std::string& path, std::uint64_t offset) {
    if (path != "a" || offset != 200) return;
    reading.count_down();
    go.wait();
  };
  auto prefetcher = std::make_unique<Prefetcher>(storage_, order(), PrefetcherOptions{.threads = 1});
  reading.wait();
  EXPECT_FALSE(prefetcher->wait_until_idle(Deadline::after(std::chrono::milliseconds{1})));
  std::jthread stopper([&] { prefetcher.reset(); });
  go.count_down();
  stopper.join();
  EXPECT_THAT(files_in(scratch_ / "cache/fetching"), IsEmpty());
}

// As a request to a store that does not answer.
TEST_F(PrefetcherTest, EndsTheWaitsBetweenTwoAttemptsOfARequestWhenItIsDestroyed) {
  prepare("a", 100);
  std::latch failed{1};
  remote_->before_read = [&, has_failed = false](const std::string&, std::uint64_t) mutable {
    const auto attempt = [&] {
      if (!std::exchange(has_failed, true)) failed.count_down();
      throw EnvironmentError("The store does not answer.");
    };
    const RetryOptions slow{.first_wait = std::chrono::minutes{1},
                            .longest_wait = std::chrono::minutes{1},
                            .deadline = std::chrono::seconds{20}};
    RetryTimer timer;
    retry(slow, timer, detail::StopScope::of_this_thread(), attempt, [](const std::exception&) { return true; });
  };
  auto prefetcher = std::make_unique<Prefetcher>(storage_, order(), PrefetcherOptions{.threads = 1});
  failed.wait();
  const Stopwatch stopwatch;
  prefetcher.reset();
  EXPECT_LT(stopwatch.seconds(), 10.0);
}

TEST_F(PrefetcherTest, LeavesNothingExpectedWhenItEnds) {
  prepare("ab", 2);
  remote_->put("c", content_of(1000, 'c'));
  {
    Prefetcher prefetcher(storage_, order(), {.threads = 1});
    wait_for(prefetcher);
  }
  EXPECT_EQ(kept(), "ab");
  read('c');
  EXPECT_EQ(kept(), "bc") << "the one used least recently goes, not the one that was needed last";
}

TEST_F(PrefetcherTest, StartsAndStopsWithoutWork) {
  prepare("a", 100);
  for (int i = 0; i < 20; ++i) Prefetcher{storage_, order()};
  order_.clear();
  Prefetcher idle(storage_, order());
  wait_for(idle);
  idle.advance(1);
  EXPECT_LE(storage_->cache().statistics().fetched_files, 1u);
}

TEST_F(PrefetcherTest, RefusesWhatItCannotWorkWith) {
  prepare("a", 100);
  const auto refusal = [&](const PrefetcherOptions& options) {
    return message_of<UsageError>([&] { Prefetcher{storage_, order(), options}; });
  };
  EXPECT_THAT(refusal({.threads = 0}), HasSubstr("threads"));
  EXPECT_THAT(refusal({.files_ahead = 0}), HasSubstr("files_ahead"));
  EXPECT_THAT(refusal({.bytes_ahead = 0}), HasSubstr("bytes_ahead"));
  EXPECT_THROW(Prefetcher(nullptr, order()), UsageError);
  order_ = "z";
  EXPECT_THROW(Prefetcher(storage_, order()), EnvironmentError);
}

}  // namespace
}  // namespace libtrain::data
