#include <libtrain/data/sources/parquet_images.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <latch>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/data/sources/image_sets.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using detail::RowGroupCache;
using libtrain::test::message_of;
using libtrain::test::SetFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What needs files that only Python writes is in parquet_images_peer_test.py.

TEST(ParquetImages, RefuseAFolderWithoutParquetFiles) {
  const SetFolder set;
  set.write("a.txt", "");
  EXPECT_THAT(message_of<EnvironmentError>([&] { ParquetImages(set.storage()); }),
              AllOf(HasSubstr(set.path()), HasSubstr("Parquet files")));
}

TEST(ParquetImages, RefuseAFileThatIsNoParquet) {
  const SetFolder set;
  set.write("a.parquet", "no Parquet");
  EXPECT_THAT(message_of<EnvironmentError>([&] { ParquetImages(set.storage()); }),
              HasSubstr(set.path() + "/a.parquet"));
}

TEST(ParquetImages, NeedRoomForARowGroup) {
  const SetFolder set;
  EXPECT_THAT(message_of<UsageError>([&] { ParquetImages(set.storage(), {.row_groups_in_memory = 0}); }),
              HasSubstr("row_groups_in_memory"));
}

TEST(ParquetImages, NeedAStorage) {
  EXPECT_THROW(ParquetImages(nullptr), UsageError);
}

// Told from others by how many rows it has.
ParquetRows rows_of(std::size_t group) {
  return ParquetRows("row group", group, {}, nullptr);
}

class RowGroups : public ::testing::Test {
 protected:
  // What is read when this group is asked for.
  std::vector<std::size_t> read_for(std::size_t group) {
    std::vector<std::size_t> read;
    const auto rows = cache_.get(group, [&] {
      read.push_back(group);
      return rows_of(group);
    });
    EXPECT_EQ(rows->size(), group);
    return read;
  }

  RowGroupCache cache_{2};
};

TEST_F(RowGroups, AreReadOnce) {
  EXPECT_THAT(read_for(7), ElementsAre(7U));
  EXPECT_THAT(read_for(7), IsEmpty());
  EXPECT_THAT(read_for(8), ElementsAre(8U));
  EXPECT_THAT(read_for(7), IsEmpty());
}

TEST_F(RowGroups, LeaveLeastRecentlyUsedFirst) {
  read_for(1);
  read_for(2);
  read_for(1);
  read_for(3);
  EXPECT_THAT(read_for(1), IsEmpty());
  EXPECT_THAT(read_for(3), IsEmpty());
  EXPECT_THAT(read_for(2), ElementsAre(2U));
  EXPECT_THAT(read_for(3), IsEmpty());
  EXPECT_THAT(read_for(1), ElementsAre(1U));
}

TEST_F(RowGroups, StayWithThoseWhoUseThem) {
  const auto rows = cache_.get(5, [] { return rows_of(5); });
  const std::weak_ptr<const ParquetRows> other = cache_.get(6, [] { return rows_of(6); });
  EXPECT_FALSE(other.expired());
  read_for(7);
  read_for(8);
  EXPECT_EQ(rows->size(), 5U);
  EXPECT_TRUE(other.expired());
}

TEST_F(RowGroups, AreReadAgainAfterAFailure) {
  const auto fail = []() -> ParquetRows { throw EnvironmentError("unplugged"); };
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(message_of<EnvironmentError>([&] { cache_.get(7, fail); }), HasSubstr("unplugged"));
  }
  EXPECT_THAT(read_for(7), ElementsAre(7U));
  EXPECT_THAT(read_for(7), IsEmpty());
}

TEST_F(RowGroups, AreReadOnceForThreadsThatAskAtOnce) {
  constexpr int kThreads = 4;
  for (std::size_t group = 1; group <= 100; ++group) {
    std::latch asked{kThreads};
    std::atomic<int> readings = 0;
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        asked.arrive_and_wait();
        const auto rows = cache_.get(group, [&] {
          ++readings;
          return rows_of(group);
        });
        EXPECT_EQ(rows->size(), group);
      });
    }
    threads.clear();
    ASSERT_EQ(readings, 1);
  }
}

TEST_F(RowGroups, AreReadByAThreadThatWaitsForOneThatFails) {
  std::latch is_read{1};
  std::latch is_asked_for{1};
  const std::jthread failing([&] {
    const auto fail = [&]() -> ParquetRows {
      is_read.count_down();
      is_asked_for.wait();
      throw EnvironmentError("unplugged");
    };
    EXPECT_THROW(cache_.get(7, fail), EnvironmentError);
  });
  const std::jthread waiting([&] {
    is_read.wait();
    is_asked_for.count_down();
    EXPECT_EQ(cache_.get(7, [] { return rows_of(7); })->size(), 7U);
  });
}

// Either reading ends only once the other has begun.
TEST_F(RowGroups, OfDifferentNumbersAreReadAtTheSameTime) {
  std::mutex mutex;
  std::condition_variable changed;
  int begun = 0;
  std::vector<std::jthread> threads;
  for (std::size_t group = 0; group < 2; ++group) {
    threads.emplace_back([&, group] {
      cache_.get(group, [&] {
        std::unique_lock lock(mutex);
        ++begun;
        changed.notify_all();
        EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds{20}, [&] { return begun == 2; }));
        return rows_of(group);
      });
    });
  }
}

TEST_F(RowGroups, NeedRoomForOne) {
  EXPECT_THAT(message_of<UsageError>([] { RowGroupCache{0}; }), HasSubstr("row_groups_in_memory"));
}

}  // namespace
}  // namespace libtrain::data
