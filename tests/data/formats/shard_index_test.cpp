#include <libtrain/data/formats/shard_index.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/tar.hpp>
#include <libtrain/data/formats/tf_record.hpp>
#include <libtrain/data/storage/storage.hpp>

#include <tests/data/formats/deflated.hpp>
#include <tests/data/formats/hex_bytes.hpp>
#include <tests/data/formats/mutation.hpp>
#include <tests/data/formats/record_bytes.hpp>
#include <tests/data/formats/tar_bytes.hpp>
#include <tests/data/memory_file.hpp>
#include <tests/support/log_sinks.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::CapturedLog;
using libtrain::test::message_of;
using libtrain::test::read_file;
using libtrain::test::TemporaryFolder;
using libtrain::test::write_file;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class ShardIndexFiles : public ::testing::Test {
 protected:
  static ShardIdentity identity() {
    return {.format = "tar", .name = "data/train-00001.tar", .size = 10'000, .version = "etag-1"};
  }

  static ShardIndex index() {
    ShardIndex result;
    result.add(512, 100, "0001.jpg");
    result.add(1536, 0, "0001.cls");
    result.add(2048, 7952);
    return result;
  }

  std::string path() const { return shard_index_path(folder_.path(), identity()); }

  TemporaryFolder folder_;
  CapturedLog log_;
};

TEST_F(ShardIndexFiles, KnowsOffsetsSizesAndNames) {
  EXPECT_EQ(index().size(), 3U);
  EXPECT_EQ(index().offset(1), 1536U);
  EXPECT_EQ(index().bytes(0), 100U);
  const ShardIndex named = index();
  EXPECT_EQ(named.name(0), "0001.jpg");
  EXPECT_EQ(named.name(1), "0001.cls");
  EXPECT_EQ(named.name(2), "");
}

TEST_F(ShardIndexFiles, LoadsWhatItSaved) {
  save_shard_index(path(), identity(), index());
  EXPECT_EQ(load_shard_index(path(), identity()), index());
  EXPECT_EQ(folder_.count(), 1);
  EXPECT_THAT(log_.lines(), IsEmpty());
}

// Written out by hand except for the checksum, which was computed in Python from the definition of CRC-32C, and the
// XXH3-128 of the shard's name, by xxHash itself. An index that was saved before a change remains usable as long as
// this holds.
TEST_F(ShardIndexFiles, HasItsBytesSpeltOut) {
  const std::string bytes = "ltshard3" + from_hex("146ae4ef") +                 //
                            from_hex("0a03") + "tar" +                          // 1: format
                            from_hex("1214") + "data/train-00001.tar" +         // 2: name
                            from_hex("18 904e") +                               // 3: size
                            from_hex("2206") + "etag-1" +                       // 4: version
                            from_hex("2a0f 08 8004 10 64 1a08") + "0001.jpg" +  // 5: offset, bytes, name
                            from_hex("2a0f 08 800c 10 00 1a08") + "0001.cls" +  //
                            from_hex("2a06 08 8010 10 903e");
  EXPECT_EQ(path(), folder_ / "train-00001.tar-7ee1889d6d40b34d13985e1299c33d11.tar-index");
  save_shard_index(path(), identity(), index());
  EXPECT_EQ(read_file(path()), bytes);
  write_file(path(), bytes);
  EXPECT_EQ(load_shard_index(path(), identity()), index());
}

TEST_F(ShardIndexFiles, IsAbsentWithoutAWarningBeforeItIsSaved) {
  EXPECT_EQ(load_shard_index(path(), identity()), std::nullopt);
  EXPECT_THAT(log_.lines(), IsEmpty());
}

TEST_F(ShardIndexFiles, BelongsToOneStateOfOneShard) {
  save_shard_index(path(), identity(), index());
  auto other = identity();
  other.version = "etag-2";
  EXPECT_EQ(load_shard_index(path(), other), std::nullopt);
  EXPECT_EQ(shard_index_path(folder_.path(), other), path());
  other = identity();
  other.size = 10'001;
  EXPECT_EQ(load_shard_index(path(), other), std::nullopt);
  other = identity();
  other.name = "data/train-00002.tar";
  EXPECT_EQ(load_shard_index(path(), other), std::nullopt);
  EXPECT_NE(shard_index_path(folder_.path(), other), path());
  other = identity();
  other.format = "tfrecord";
  EXPECT_EQ(load_shard_index(path(), other), std::nullopt);
  EXPECT_THAT(log_.lines(), IsEmpty());
}

// An index without entries would make a shard empty that is not; one of a longer shard is no damaged one.
TEST_F(ShardIndexFiles, BelongToOneStateAlsoWhereTheyAreEmptyOrTheShardShrank) {
  save_shard_index(path(), identity(), {});
  EXPECT_EQ(load_shard_index(path(), identity()), ShardIndex{});
  auto other = identity();
  other.version = "etag-2";
  EXPECT_EQ(load_shard_index(path(), other), std::nullopt);
  save_shard_index(path(), identity(), index());
  other.size = 600;
  EXPECT_EQ(load_shard_index(path(), other), std::nullopt);
  EXPECT_THAT(log_.lines(), IsEmpty());
}

TEST_F(ShardIndexFiles, SeparatesShardsOfOneNameInTwoFolders) {
  auto other = identity();
  other.name = "validation/train-00001.tar";
  EXPECT_NE(shard_index_path("cache", other), shard_index_path("cache", identity()));
  EXPECT_THAT(shard_index_path("cache", other), StartsWith("cache/train-00001.tar-"));
  other.name = "../../etc/.. x\n";
  EXPECT_THAT(shard_index_path("cache", other), StartsWith("cache/.._x_-"));
}

// File systems take names of up to 255 bytes.
TEST_F(ShardIndexFiles, AreNamedByTheEndOfALongNameAndByHarmlessCharacters) {
  auto other = identity();
  other.name = "data/" + std::string(300, 'a') + std::string(64, 'b');
  EXPECT_THAT(shard_index_path("cache", other), StartsWith("cache/" + std::string(64, 'b') + "-"));
  other.name = "data/09AZaz-_.:@[`{";
  EXPECT_THAT(shard_index_path("cache", other), StartsWith("cache/09AZaz-_._____-"));
}

TEST_F(ShardIndexFiles, EveryTruncationIsBuiltAgainWithAWarning) {
  save_shard_index(path(), identity(), index());
  const std::string whole = read_file(path());
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write_file(path(), whole.substr(0, length));
    log_.clear();
    EXPECT_EQ(load_shard_index(path(), identity()), std::nullopt) << length;
    const auto warning = AllOf(HasSubstr("warning"), HasSubstr("train-00001.tar"), HasSubstr("built again"));
    EXPECT_THAT(log_.lines(), ElementsAre(warning));
  }
}

TEST_F(ShardIndexFiles, MutatedOnesAreNeverTrusted) {
  save_shard_index(path(), identity(), index());
  const std::string whole = read_file(path());
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const std::string mutated = Mutator(seed).mutate(whole);
    write_file(path(), mutated);
    const auto loaded = load_shard_index(path(), identity());
    EXPECT_TRUE(!loaded || mutated == whole) << seed;
  }
}

// With a right checksum, but entries that a shard of this size cannot have.
TEST_F(ShardIndexFiles, RefusesEntriesOutsideTheShard) {
  ShardIndex wrong;
  wrong.add(512, 9'489);
  save_shard_index(path(), identity(), wrong);
  EXPECT_EQ(load_shard_index(path(), identity()), std::nullopt);
  ShardIndex overlapping;
  overlapping.add(512, 100);
  overlapping.add(600, 100);
  save_shard_index(path(), identity(), overlapping);
  EXPECT_EQ(load_shard_index(path(), identity()), std::nullopt);
  ShardIndex backwards;
  backwards.add(2048, 100);
  backwards.add(512, 100);
  save_shard_index(path(), identity(), backwards);
  EXPECT_EQ(load_shard_index(path(), identity()), std::nullopt);
  EXPECT_THAT(log_.lines(),
              ElementsAre(HasSubstr("9489 bytes at 512"), HasSubstr("100 bytes at 600"),
                          AllOf(HasSubstr("between bytes 2148 and 10000"), HasSubstr("100 bytes at 512"))));
}

TEST_F(ShardIndexFiles, HoldEntriesThatTouchUpToTheEndOfTheShardAndNoneBehind) {
  ShardIndex touching;
  touching.add(0, 100);
  touching.add(100, 9'900);
  touching.add(10'000, 0);
  save_shard_index(path(), identity(), touching);
  EXPECT_EQ(load_shard_index(path(), identity()), touching);
  ShardIndex behind;
  behind.add(10'001, 0);
  save_shard_index(path(), identity(), behind);
  EXPECT_EQ(load_shard_index(path(), identity()), std::nullopt);
  EXPECT_THAT(log_.lines(), ElementsAre(HasSubstr("0 bytes at 10001")));
}

TEST_F(ShardIndexFiles, MakeOpeningATfRecordFileAgainFree) {
  const std::string bytes = framed("first") + framed("second");
  const ShardOptions options{.index_folder = folder_ / "indices", .version = "1"};
  EXPECT_EQ(TfRecordFile(memory_file(bytes), options).size(), 2U);

  auto file = std::make_unique<MemoryFile>(bytes);
  const MemoryFile& seen = *file;
  const TfRecordFile again(std::move(file), options);
  EXPECT_EQ(seen.reads(), 0);
  std::string data;
  again.read(1, data);
  EXPECT_EQ(data, "second");
}

// As the ranks of a host do, each of which would read all of a remote set otherwise.
TEST_F(ShardIndexFiles, AreBuiltOnceByManyThatOpenTheShardAtTheSameTime) {
  constexpr std::size_t kRanks = 8;
  std::string bytes;
  for (int i = 0; i < 50; ++i) bytes += tar_member({.name = std::to_string(i), .data = std::string(100'000, 'x')});
  bytes += tar_end();
  const ShardOptions options{.index_folder = folder_ / "indices", .version = "1"};
  std::vector<const MemoryFile*> files(kRanks);
  std::vector<std::optional<TarFile>> opened(kRanks);
  std::latch start{static_cast<std::ptrdiff_t>(kRanks)};
  {
    std::vector<std::jthread> ranks;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        auto file = std::make_unique<MemoryFile>(bytes);
        files[rank] = file.get();
        start.arrive_and_wait();
        opened[rank].emplace(std::move(file), options);
      });
    }
  }
  std::size_t builders = 0;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(opened[rank]->size(), 50U);
    if (files[rank]->reads() > 1) ++builders;  // the first read tells whether the shard is compressed
  }
  EXPECT_EQ(builders, 1U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ / "indices"), {}), 2);  // one for copies
}

TEST_F(ShardIndexFiles, MakeOpeningATarFileAgainFree) {
  const std::string bytes = tar_member({.name = "a.txt", .data = "hello"}) + tar_end();
  const ShardOptions options{.index_folder = folder_.path(), .version = "1"};
  EXPECT_EQ(TarFile(memory_file(bytes), options).size(), 1U);

  auto file = std::make_unique<MemoryFile>(bytes);
  const MemoryFile& seen = *file;
  const TarFile again(std::move(file), options);
  EXPECT_EQ(seen.reads(), 0);
  EXPECT_EQ(again.member_name(0), "a.txt");
}

// Three members; a tar archive's header and data take whole blocks, so that lengths of the same blocks are alike in
// size.
std::string three_members(std::size_t second_bytes) {
  return tar_member({.name = "0.bin", .data = std::string(70'000, 'x')}) +
         tar_member({.name = "1.bin", .data = std::string(second_bytes, 'y')}) +
         tar_member({.name = "2.bin", .data = std::string(70'000, 'z')}) + tar_end();
}

TEST_F(ShardIndexFiles, ServeACopyOfTheShardAtAnotherPlace) {
  const std::string bytes = three_members(70'000);
  const ShardOptions options{.index_folder = folder_.path(), .version = "1"};
  EXPECT_EQ(TarFile(std::make_unique<MemoryFile>(bytes, "/here/a.tar"), options).size(), 3U);
  for (const int reads : {3, 0}) {  // whether it is compressed, and its ends; then by its own name
    auto file = std::make_unique<MemoryFile>(bytes, "/there/a.tar");
    const MemoryFile& seen = *file;
    const TarFile copy(std::move(file), {.index_folder = folder_.path(), .version = "2"});
    EXPECT_EQ(seen.reads(), reads);
    std::string data;
    copy.read(1, data);
    EXPECT_EQ(data, std::string(70'000, 'y'));
  }
}

TEST_F(ShardIndexFiles, OfShardsWithEqualNamesInTwoFoldersStaySideBySide) {
  const ShardOptions options{.index_folder = folder_.path(), .version = "1"};
  for (int time = 0; time < 2; ++time) {
    for (const std::size_t bytes : {70'000, 60'000}) {
      auto file = std::make_unique<MemoryFile>(three_members(bytes), text("/", bytes, "/train/a.tar"));
      const MemoryFile& seen = *file;
      const TarFile tar(std::move(file), options);
      EXPECT_EQ(tar.bytes(1), bytes);
      EXPECT_TRUE(time == 0 || seen.reads() == 0) << seen.reads();
    }
  }
}

TEST_F(ShardIndexFiles, OfAShardThatChangedInTheMiddleAreBuiltAgain) {
  const ShardOptions before{.index_folder = folder_.path(), .version = "1"};
  const ShardOptions after{.index_folder = folder_.path(), .version = "2"};
  for (const auto* name : {"/here/a.tar", "/copy/a.tar"}) {
    EXPECT_EQ(TarFile(std::make_unique<MemoryFile>(three_members(70'000), name), before).bytes(1), 70'000U);
  }
  for (const auto* name : {"/here/a.tar", "/copy/a.tar"}) {
    EXPECT_EQ(TarFile(std::make_unique<MemoryFile>(three_members(69'990), name), after).bytes(1), 69'990U) << name;
  }
}

// A shard of the same name and size with the same ends, which no name or version tells from a copy.
TEST_F(ShardIndexFiles, ThatFitAnotherShardEndTheRunWhereAHeaderTellsIt) {
  const ShardOptions options{.index_folder = folder_.path(), .version = "1"};
  EXPECT_EQ(TarFile(std::make_unique<MemoryFile>(three_members(70'000), "/here/a.tar"), options).size(), 3U);
  const TarFile other(std::make_unique<MemoryFile>(three_members(69'990), "/there/a.tar"), options);
  std::string data;
  other.read(0, data);
  EXPECT_THAT(message_of<StorageUnavailable>([&] { other.read(1, data); }),
              AllOf(HasSubstr("member '1.bin' at byte offset"), HasSubstr("remove the folder of indices")));

  const std::string end(70'000, 'x');
  const auto records = [&](std::size_t second) {
    return framed(end) + framed(std::string(second, 'y')) + framed(std::string(100 - second, 'y')) + framed(end);
  };
  EXPECT_EQ(TfRecordFile(std::make_unique<MemoryFile>(records(10), "/here/a"), options).size(), 4U);
  const TfRecordFile changed(std::make_unique<MemoryFile>(records(20), "/there/a"), options);
  changed.read(0, data);
  EXPECT_EQ(data, end);
  for (const std::size_t record : {1, 2}) {
    EXPECT_THAT(message_of<StorageUnavailable>([&] { changed.read(record, data); }),
                HasSubstr(text("record ", record, " at byte offset")));
  }
}

// By their headers all members are alike but for their names.
std::string members_between_ends(const std::string& first, const std::string& second) {
  const std::string end = tar_member({.name = "end.bin", .data = std::string(70'000, 'x')});
  return end + first + second + end + tar_end();
}

TEST_F(ShardIndexFiles, ThatFitAShardOfTheSameMembersInAnotherOrderEndTheRun) {
  const ShardOptions options{.index_folder = folder_.path(), .version = "1"};
  const std::string extended = tar_member({.name = "PaxHeaders/x", .data = pax_line("mtime", "1.5"), .type = 'x'});
  for (const std::string& before : {std::string{}, extended}) {
    const std::string first = before + tar_member({.name = "1.bin", .data = "first"});
    const std::string second = before + tar_member({.name = "2.bin", .data = "other"});
    const std::string name = before.empty() ? "a.tar" : "b.tar";
    TarFile(std::make_unique<MemoryFile>(members_between_ends(first, second), "/here/" + name), options);
    const TarFile other(std::make_unique<MemoryFile>(members_between_ends(second, first), "/there/" + name), options);
    std::string data;
    other.read(0, data);
    for (const std::uint64_t member : {1, 2}) {
      EXPECT_THAT(message_of<StorageUnavailable>([&] { other.read(member, data); }),
                  HasSubstr(text("member '", member, ".bin' at byte offset")));
    }
    std::string other_data;
    EXPECT_THAT(message_of<StorageUnavailable>([&] { other.read(1, data, 2, other_data); }), HasSubstr("'1.bin'"));
  }
}

TEST_F(ShardIndexFiles, FitShardsWhoseExtendedHeadersHaveTheNames) {
  const std::string pax = tar_member({.name = "x", .data = pax_line("path", "1.bin"), .type = 'x'}) +
                          tar_member({.name = "short", .data = "first"});
  const std::string gnu = tar_member({.name = "././@LongLink", .data = std::string("2.bin\0", 6), .type = 'L'}) +
                          tar_member({.name = "short", .data = "other"});
  const ShardOptions options{.index_folder = folder_.path(), .version = "1"};
  for (const auto* place : {"/here/a.tar", "/there/a.tar"}) {
    const TarFile tar(std::make_unique<MemoryFile>(members_between_ends(pax, gnu), place), options);
    std::string first;
    std::string second;
    tar.read(1, first, 2, second);
    EXPECT_EQ(first + " " + second, "first other");
  }
}

TEST_F(ShardIndexFiles, AreReplacedWhenTheShardChanges) {
  ShardOptions options{.index_folder = folder_.path(), .version = "1"};
  EXPECT_EQ(TfRecordFile(memory_file(framed("first")), options).size(), 1U);
  options.version = "2";
  EXPECT_EQ(TfRecordFile(memory_file(framed("") + framed("1")), options).size(), 2U);
  EXPECT_EQ(TfRecordFile(memory_file(framed("") + framed("1")), options).size(), 2U);
  EXPECT_EQ(folder_.count(), 3);  // by name, and one of each content for copies
}

TEST_F(ShardIndexFiles, AreNotKeptWithoutAVersionNorForCompressedShards) {
  EXPECT_EQ(TfRecordFile(memory_file(framed("first")), {.index_folder = folder_.path()}).size(), 1U);
  const ShardOptions options{.index_folder = folder_.path(), .version = "1"};
  EXPECT_EQ(TfRecordFile(memory_file(deflated(framed("first"), Wrapping::gzip)), options).size(), 1U);
  EXPECT_EQ(folder_.count(), 0);
  // Without a folder the second one would find the index where the program runs.
  for (int time = 0; time < 2; ++time) {
    auto file = std::make_unique<MemoryFile>(framed("first"));
    const MemoryFile& seen = *file;
    const TfRecordFile opened(std::move(file), {.version = "1"});
    EXPECT_GT(seen.reads(), 0) << time;
  }
}

TEST_F(ShardIndexFiles, ThatCannotBeKeptAreAWarning) {
  write_file(folder_ / "file", "in the way");
  const ShardOptions options{.index_folder = folder_ / "file", .version = "1"};
  EXPECT_EQ(TfRecordFile(memory_file(framed("first")), options).size(), 1U);
  EXPECT_THAT(log_.lines(), ElementsAre(AllOf(HasSubstr("warning"), HasSubstr("cannot be saved"), HasSubstr("file"))));
}

}  // namespace
}  // namespace libtrain::data
