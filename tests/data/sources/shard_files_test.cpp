#include <libtrain/data/sources/shard_files.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <mutex>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/data/memory_file.hpp>
#include <tests/data/storage/memory_storage.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using detail::list_shards;
using detail::open_concurrently;
using detail::run_concurrently;
using detail::shard_kind_of;
using detail::ShardKind;
using detail::ShardTable;
using libtrain::test::MemoryStorage;
using libtrain::test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ShardFiles, AreToldByTheirNames) {
  for (const std::string_view name : {"a.parquet", "train-00000-of-00002.parquet", "A.Parquet", "a.tfrecord.parquet"}) {
    EXPECT_EQ(shard_kind_of(name, "", ""), ShardKind::parquet) << name;
  }
  for (const std::string_view name : {"a.tar", "a.tar.gz", "a.tgz", "A.TAR", "train-00000-of-00002.tar", ".tar"}) {
    EXPECT_EQ(shard_kind_of(name, "", ""), ShardKind::tar) << name;
  }
  for (const std::string_view name : {"a.tfrecord", "a.tfrecords", "a.tfrecord.gz", "a.TFRecord",
                                      "set.tfrecord-00000-of-00010", "train-00000-of-01024", "x-123456-of-123457"}) {
    EXPECT_EQ(shard_kind_of(name, "", ""), ShardKind::tf_record) << name;
  }
}

TEST(ShardFiles, AreNotOtherFiles) {
  for (const std::string_view name :
       {"a.jpg", "tar", "parquet", "tfrecord", "a.tar.zst", "a.tar.partial", "a.parquet.crc", "train-0000-of-0102",
        "train-00000-of-01024.json", "train-00000-for-01024", "00000-of-01024", "train_00000-of-01024", "-of-01024",
        "01024", "a.tfrecord.17-4.partial", "a.tfrecord-0011223344556677.tfrecord-index"}) {
    EXPECT_EQ(shard_kind_of(name, "", ""), std::nullopt) << name;
  }
}

TEST(ShardFiles, LieRightInTheFolderAndBeginWithThePrefix) {
  EXPECT_EQ(shard_kind_of("data/train/a.tar", "data/train", ""), ShardKind::tar);
  EXPECT_EQ(shard_kind_of("data/train/a.tar", "data", ""), std::nullopt);
  EXPECT_EQ(shard_kind_of("data/train/a.tar", "", ""), std::nullopt);
  EXPECT_EQ(shard_kind_of("data/train-a.tar", "data", "train"), ShardKind::tar);
  EXPECT_EQ(shard_kind_of("data/a-train.tar", "data", "train"), std::nullopt);
}

TEST(ShardFiles, AreListedInTheOrderOfTheirNames) {
  MemoryStorage storage;
  for (const std::string name : {"b.tar", "a.tar", "10.tgz", "c.tfrecord", "folder/a.tar", "a.txt"}) {
    storage.put("set/" + name, name, "version of " + name);
  }
  std::vector<std::string> versions;
  const auto found = list_shards(storage, "set", "", ShardKind::tar);
  for (const auto& file : found.shards) versions.push_back(file.version);
  EXPECT_THAT(versions, ElementsAre("version of 10.tgz", "version of a.tar", "version of b.tar"));
}

TEST(ShardFiles, AreListedWithTheNamesOfClassesRightBesideThem) {
  MemoryStorage storage;
  for (const std::string path : {"a.tar", "set/a.tar", "set/classes.txt", "set/folder/a.tar", "other/classes.txt",
                                 "other/a.tar", "other/more-classes.txt"}) {
    storage.put(path, "");
  }
  EXPECT_EQ(list_shards(storage, "", "", ShardKind::tar).class_names, "");
  EXPECT_EQ(list_shards(storage, "set", "", ShardKind::tar).class_names, "set/classes.txt");
  EXPECT_EQ(list_shards(storage, "set/folder", "", ShardKind::tar).class_names, "");
  EXPECT_EQ(list_shards(storage, "other", "a", ShardKind::tar).class_names, "other/classes.txt");
  storage.put("classes.txt", "");
  EXPECT_EQ(list_shards(storage, "", "", ShardKind::tar).class_names, "classes.txt");
}

// Each waits until the others have begun, too.
TEST(ShardFiles, AreOpenedSeveralAtOnceAndKeepTheirOrder) {
  const std::vector<FileInfo> files{
      {.path = "a", .version = ""}, {.path = "b", .version = ""}, {.path = "c", .version = ""}};
  std::mutex mutex;
  std::condition_variable begun;
  std::size_t count = 0;
  const auto opened = open_concurrently(files, [&](const FileInfo& file) {
    std::unique_lock lock(mutex);
    ++count;
    begun.notify_all();
    EXPECT_TRUE(begun.wait_for(lock, std::chrono::seconds{60}, [&] { return count == files.size(); }));
    return file.path;
  });
  EXPECT_THAT(opened, ElementsAre("a", "b", "c"));
}

TEST(RunConcurrently, CallsWorkOnceForEachWhateverTheirNumber) {
  for (const std::size_t files : {0U, 1U, 15U, 16U, 17U, 1000U}) {
    std::vector<std::atomic<int>> calls(files);
    run_concurrently(files, 16, [&](std::size_t i, const std::stop_token&) { ++calls[i]; });
    EXPECT_TRUE(std::all_of(calls.begin(), calls.end(), [](const auto& times) { return times == 1; })) << files;
  }
}

// Which one a user hears of does not depend on which thread is first.
TEST(RunConcurrently, ThrowsTheFailureOfTheFirst) {
  for (int round = 0; round < 50; ++round) {
    std::latch begun{2};
    std::atomic<int> calls = 0;
    const auto refuse = [&](std::size_t i, const std::stop_token&) {
      ++calls;
      if (i < 2) begun.arrive_and_wait();
      // So that the other one of the two is first.
      for (int turn = 0; i < 2 && static_cast<int>(i) == round % 2 && turn < 1000; ++turn) std::this_thread::yield();
      throw EnvironmentError(std::to_string(i));
    };
    EXPECT_EQ(message_of<EnvironmentError>([&] { run_concurrently(1000, 16, refuse); }), "0");
    EXPECT_LE(calls, 16);
  }
}

TEST(ShardFiles, AreMissedWithTheNameOfTheFolder) {
  MemoryStorage storage;
  storage.put("set/a.tar", "");
  storage.put("set/b.txt", "");
  EXPECT_THAT(message_of<EnvironmentError>([&] { list_shards(storage, "set", "", ShardKind::parquet); }),
              AllOf(HasSubstr("'memory://set/set'"), HasSubstr("Parquet files"), HasSubstr("2 files")));
  EXPECT_THAT(message_of<EnvironmentError>([&] { list_shards(storage, "set", "train", ShardKind::tar); }),
              AllOf(HasSubstr("tar archives"), HasSubstr("'train'")));
  EXPECT_THAT(message_of<EnvironmentError>([&] { list_shards(storage, "", "", ShardKind::tf_record); }),
              AllOf(HasSubstr("'memory://set'"), HasSubstr("TFRecord files")));
}

// What list_shards() says of a folder with these files.
std::string refusal_of(const std::vector<std::string>& names, const std::string& prefix = "",
                       ShardKind kind = ShardKind::tar) {
  MemoryStorage storage;
  for (const auto& name : names) storage.put("set/" + name, "");
  try {
    list_shards(storage, "set", prefix, kind);
    return "";
  } catch (const EnvironmentError& error) {
    return error.what();
  }
}

TEST(ShardFiles, AreNotTakenWhereOneOfTheirNumberIsMissing) {
  const auto missing = [](const std::string& shard, const std::string& found) {
    return AllOf(HasSubstr("'memory://set/set'"), HasSubstr("without '" + shard + "'"), HasSubstr(found));
  };
  const std::vector<std::string> tars{"a-00000-of-00003.tar", "a-00002-of-00003.tar"};
  EXPECT_THAT(refusal_of(tars), missing("a-00001-of-00003.tar", "all 3 shards of 'a-*-of-00003.tar', found 2"));
  EXPECT_THAT(refusal_of(tars, "a"), missing("a-00001-of-00003.tar", "found 2"));
  EXPECT_THAT(refusal_of(tars, "a-"), missing("a-00001-of-00003.tar", "found 2"));
  EXPECT_THAT(refusal_of({"a-00001-of-00002.tar"}), missing("a-00000-of-00002.tar", "found 1"));
  EXPECT_THAT(refusal_of({"a-00001-of-00003.tar", "a-00003-of-00003.tar"}), missing("a-00002-of-00003.tar", "found 2"));
  EXPECT_THAT(refusal_of({"a-00000-of-00002.tar", "b.tar", "a-00001-of-00002.tar.gz"}),
              missing("a-00001-of-00002.tar", "found 1"));
  EXPECT_THAT(refusal_of({"a.tfrecord-00000-of-00002"}, "", ShardKind::tf_record),
              missing("a.tfrecord-00001-of-00002", "found 1"));
  EXPECT_THAT(refusal_of({"a-00000-of-00002", "a-00001-of-00002.tfrecord"}, "", ShardKind::tf_record),
              missing("a-00001-of-00002", "found 1"));
  EXPECT_THAT(refusal_of({"a-00000-of-00002.parquet"}, "", ShardKind::parquet),
              missing("a-00001-of-00002.parquet", "found 1"));
  EXPECT_THAT(refusal_of({"a-00001-of-00002-0123456789abcdef.parquet"}, "", ShardKind::parquet),
              missing("a-00000-of-00002*.parquet", "found 1"));
  EXPECT_THAT(refusal_of({"a-000000-of-18446744073709551615.tar"}), HasSubstr("found 1"));
}

TEST(ShardFiles, AreNotTakenFromTwoSetsOfOneName) {
  EXPECT_THAT(refusal_of({"a-00000-of-00002.tar", "a-00000-of-00003.tar", "a-00001-of-00002.tar",
                          "a-00001-of-00003.tar", "a-00002-of-00003.tar"}),
              AllOf(HasSubstr("'memory://set/set'"), HasSubstr("'a-*-of-00002.tar'"), HasSubstr("'a-*-of-00003.tar'")));
}

TEST(ShardFiles, AreNotTakenTwice) {
  for (const std::string other : {"-0f1e56789abcdef0", ""}) {
    EXPECT_THAT(refusal_of({"a-00000-of-00001-b42a56789abcdef0.parquet", "a-00000-of-00001" + other + ".parquet"}, "",
                           ShardKind::parquet),
                AllOf(HasSubstr("'memory://set/set'"), HasSubstr("'a-00000-of-00001-b42a56789abcdef0.parquet'"),
                      HasSubstr("'a-00000-of-00001" + other + ".parquet'")));
  }
}

TEST(ShardFiles, AreTakenFromCompleteSetsAndFromAPartThatThePrefixChooses) {
  EXPECT_EQ(
      refusal_of({"a-00000-of-00002.tar", "a-00001-of-00002.tar", "a-00000-of-00003.idx", "b-00000-of-00001.tar",
                  "a-00000-of-00001.tar.gz", "c.tar", "best-of-00001.tar", "a-0-of-2.tar", "d-00000-of-00000.tar"}),
      "");
  EXPECT_EQ(refusal_of({"a-00001-of-00002.tar", "a-00002-of-00002.tar"}), "");
  EXPECT_EQ(refusal_of({"a-00000-of-00002.tar", "b-00000-of-00001.tar"}, "b"), "");
  EXPECT_EQ(refusal_of({"a-00000-of-00002.tar", "a-00000-of-00012.tar"}, "a-0000"), "");
  EXPECT_EQ(refusal_of({"a-00000-of-00002-0123.parquet", "a-00001-of-00002-4567.parquet"}, "", ShardKind::parquet), "");
  EXPECT_EQ(refusal_of({"a-00000-of-00001-en.tar", "a-00000-of-00001-2019.tar", "a-00000-of-00001-2020.tar"}), "");
  EXPECT_EQ(refusal_of({"a-00000-of-99999999999999999999.tar"}), "");
}

TEST(ShardFiles, AreNotTakenFromSeveralSplits) {
  const auto splits = [](const std::string& first, const std::string& second) {
    return AllOf(HasSubstr("'memory://set/set'"), HasSubstr("'" + first + "'"), HasSubstr("'" + second + "'"),
                 HasSubstr("the prefix of its names"));
  };
  for (const std::string split : {"validation", "valid", "val", "test", "dev", "eval"}) {
    for (const std::string end : {"-0", "_0", ".0", "2017"}) {
      EXPECT_THAT(refusal_of({"train" + end + ".tar", split + end + ".tar"}), splits("train", split)) << end;
    }
  }
  EXPECT_THAT(refusal_of({"Train.tar", "VAL.TAR", "test-1.tar", "test-2.tar"}), HasSubstr("'test', 'train', 'val'"));
  EXPECT_THAT(refusal_of({"train-0.parquet", "val-0.parquet"}, "", ShardKind::parquet), splits("train", "val"));
  EXPECT_THAT(refusal_of({"train-00000-of-00001", "eval-00000-of-00001"}, "", ShardKind::tf_record),
              splits("train", "eval"));
  EXPECT_EQ(refusal_of({"train-0.tar", "val-0.tar"}, "train"), "");
  EXPECT_EQ(refusal_of({"train-0.tar", "trains-0.tar", "values-0.tar", "a-val.tar", "val-0.parquet"}), "");
  EXPECT_EQ(refusal_of({"test-0.tar", "dev-0.tar", "trainval-0.tar"}), "");
}

using Sizes = std::vector<std::uint64_t>;

TEST(ShardTable, NumbersImagesShardAfterShard) {
  const ShardTable table("set", {2, 0, 3, 0, 0, 1, 0});
  ASSERT_EQ(table.size(), 6U);
  EXPECT_EQ(table.name(), "set");
  std::vector<std::size_t> shards;
  std::vector<std::uint64_t> positions;
  for (std::uint64_t i = 0; i < 6; ++i) {
    shards.push_back(table.place(i).shard);
    positions.push_back(table.place(i).position);
  }
  EXPECT_THAT(shards, ElementsAre(0U, 0U, 2U, 2U, 2U, 5U));
  EXPECT_THAT(positions, ElementsAre(0U, 1U, 0U, 1U, 2U, 0U));
}

TEST(ShardTable, FindsWhatCountingFinds) {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    Sizes sizes{1};
    for (std::size_t i = random() % 20; i > 0; --i) sizes.push_back(random() % 4);
    const ShardTable table("set", sizes);
    std::uint64_t index = 0;
    for (std::size_t shard = 0; shard < sizes.size(); ++shard) {
      for (std::uint64_t position = 0; position < sizes[shard]; ++position, ++index) {
        ASSERT_EQ(table.place(index).shard, shard);
        ASSERT_EQ(table.place(index).position, position);
      }
    }
    EXPECT_EQ(table.size(), index);
  }
}

TEST(ShardTable, GivesBlocksWithoutTheEmptyShards) {
  EXPECT_THAT(ShardTable("set", {0, 2, 0, 3}).blocks(), ElementsAre(2U, 3U));
}

TEST(ShardTable, RefusesAnImageBeyondTheLast) {
  const ShardTable table("memory://set", {2, 1});
  EXPECT_THAT(message_of<UsageError>([&] { table.place(3); }),
              AllOf(HasSubstr("Image 3"), HasSubstr("'memory://set'"), HasSubstr("3 images")));
}

TEST(ShardTable, RefusesASetWithoutImages) {
  for (const Sizes& sizes : {Sizes{}, Sizes{0}, Sizes{0, 0}}) {
    EXPECT_THAT(message_of<EnvironmentError>([&] { ShardTable("memory://set", sizes); }),
                AllOf(HasSubstr("'memory://set'"), HasSubstr("found none")));
  }
}

TEST(ShardTable, RefusesMoreImagesThanCanBeCounted) {
  const std::uint64_t half = std::uint64_t{1} << 63;
  EXPECT_EQ(ShardTable("set", {half, half - 1}).size(), ~std::uint64_t{0});
  EXPECT_THAT(message_of<EnvironmentError>([&] { ShardTable("memory://set", {half, half}); }),
              AllOf(HasSubstr("'memory://set'"), HasSubstr("2^64")));
}

}  // namespace
}  // namespace libtrain::data

namespace libtrain::data::detail {
namespace {

using libtrain::test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ClassNames names_in(const std::string& bytes) {
  return ClassNames(MemoryFile(bytes, "classes.txt"));
}

std::string refusal(const std::string& bytes) {
  return message_of<EnvironmentError>([&] { names_in(bytes); });
}

TEST(ClassNames, AreTheLinesOfTheFile) {
  EXPECT_THAT(names_in("cat\nsea dog\n").names(), ElementsAre("cat", "sea dog"));
  EXPECT_THAT(names_in("cat\nsea dog").names(), ElementsAre("cat", "sea dog"));
  EXPECT_THAT(names_in("cat\r\nsea dog\r\n").names(), ElementsAre("cat", "sea dog"));
  EXPECT_THAT(names_in(" \n\xc3\xa4\n").names(), ElementsAre(" ", "\xc3\xa4"));
}

TEST(ClassNames, MayNotBeEmpty) {
  EXPECT_THAT(refusal(""), AllOf(HasSubstr("'classes.txt', byte offset 0"), HasSubstr("no line")));
  EXPECT_THAT(refusal("\n"), AllOf(HasSubstr("'classes.txt', byte offset 0"), HasSubstr("empty line")));
  EXPECT_THAT(refusal("cat\r\n\r\ndog\r\n"), AllOf(HasSubstr("'classes.txt', byte offset 5"), HasSubstr("empty line")));
  EXPECT_THAT(refusal("cat\n\n"), HasSubstr("byte offset 4"));
}

TEST(ClassNames, BelongToTheLabelsBelowTheirNumber) {
  const ClassNames classes = names_in("cat\ndog\n");
  int asked = 0;
  const auto source = [&] {
    ++asked;
    return std::string("Sample 17");
  };
  for (const std::int64_t label : {0, 1}) classes.require(label, source);
  EXPECT_EQ(asked, 0);
  EXPECT_THAT(message_of<EnvironmentError>([&] { classes.require(2, source); }),
              AllOf(HasSubstr("Sample 17"), HasSubstr("below 2"), HasSubstr("'classes.txt'"), HasSubstr("found 2")));
  EXPECT_THROW(classes.require(INT64_MAX, source), EnvironmentError);
}

TEST(ClassNames, ThatAreNotKnownAllowAnyLabel) {
  const ClassNames unknown;
  EXPECT_THAT(unknown.names(), IsEmpty());
  unknown.require(INT64_MAX, [] { return std::string(); });
}

}  // namespace
}  // namespace libtrain::data::detail
