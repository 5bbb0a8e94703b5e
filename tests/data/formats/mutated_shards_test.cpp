// 1,000 damaged files for every parser: each is either read or refused by an EnvironmentError, with memory in
// proportion to the file. Half of the files get right checksums again, so that the damage passes the first line of
// defence.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/formats/detail/tf_example.hpp>
#include <libtrain/data/formats/idx.hpp>
#include <libtrain/data/formats/inflate.hpp>
#include <libtrain/data/formats/tar.hpp>
#include <libtrain/data/formats/tf_record.hpp>
#include <libtrain/data/formats/web_dataset.hpp>

#include <tests/data/formats/counted_allocation.hpp>
#include <tests/data/formats/deflated.hpp>
#include <tests/data/formats/mutation.hpp>
#include <tests/data/formats/shard_samples.hpp>
#include <tests/data/formats/tar_bytes.hpp>
#include <tests/data/memory_file.hpp>
#include <tests/data/memory_path.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kFiles = 1000;
constexpr std::uint64_t kInflatedLimit = std::uint64_t{1} << 16;

// What messages, file names and objects of fixed size take.
constexpr std::size_t kFixedBytes = std::size_t{64} << 10;

struct Outcome {
  int read = 0;
  int refused = 0;
};

using Parser = std::function<void(const std::string& bytes)>;
using Repair = std::function<void(std::string& bytes)>;

// `most_bytes` is what reading `bytes` bytes may take. Other exceptions end the test, with their message.
Outcome read_mutated(const std::string& whole, const Parser& parse, const Repair& repair,
                     const std::function<std::size_t(std::size_t bytes)>& most_bytes) {
  Outcome outcome;
  for (std::uint64_t seed = 0; seed < kFiles; ++seed) {
    SCOPED_TRACE(seed);
    std::string bytes = Mutator(seed).mutate(whole);
    if (seed % 2 == 1) repair(bytes);
    const AllocationPeak peak;
    try {
      parse(bytes);
      ++outcome.read;
    } catch (const EnvironmentError&) {
      ++outcome.refused;
    }
    EXPECT_LE(peak.bytes(), most_bytes(bytes.size()) + kFixedBytes);
  }
  return outcome;
}

std::size_t in_proportion(std::size_t bytes) {
  return 40 * bytes;
}

// While a buffer grows, the old one is there too, and the file itself is copied once.
std::size_t up_to_the_limit(std::size_t bytes) {
  return 40 * bytes + 45 * static_cast<std::size_t>(kInflatedLimit);
}

void leave(std::string&) {}

void expect_both(const Outcome& outcome) {
  EXPECT_GT(outcome.read, 0);
  EXPECT_GT(outcome.refused, 100);
  EXPECT_EQ(outcome.read + outcome.refused, static_cast<int>(kFiles));
}

void read_records(const std::string& bytes) {
  const TfRecordFile file(memory_file(bytes), {.inflated_limit_bytes = kInflatedLimit});
  std::string record;
  std::string first_error;
  for (std::uint64_t i = 0; i < file.size(); ++i) {
    try {
      file.read(i, record);
      detail::parse_tf_example(record, file.describe(i));
    } catch (const EnvironmentError& error) {
      if (first_error.empty()) first_error = error.what();
    }
  }
  if (!first_error.empty()) throw EnvironmentError(first_error);
}

void read_archive(const std::string& bytes) {
  const WebDatasetShard shard(TarFile(memory_file(bytes), {.inflated_limit_bytes = kInflatedLimit}));
  std::string data;
  for (std::uint64_t i = 0; i < shard.size(); ++i) {
    for (const auto& extension : shard.extensions(i)) shard.read(i, extension, data);
  }
}

TEST(MutatedShards, TfRecordFilesAreReadOrRefused) {
  expect_both(read_mutated(sample_records(), read_records, repair_records, in_proportion));
}

TEST(MutatedShards, TfExamplesAreReadOrRefused) {
  const auto parse = [](const std::string& bytes) { detail::parse_tf_example(bytes, "record"); };
  expect_both(read_mutated(sample_example(3), parse, leave, in_proportion));
}

TEST(MutatedShards, TarArchivesAreReadOrRefused) {
  expect_both(read_mutated(sample_tar(), read_archive, repair_tar, in_proportion));
}

TEST(MutatedShards, CompressedTfRecordFilesAreReadOrRefused) {
  const std::string whole = deflated(sample_records(), Wrapping::zlib);
  const Outcome outcome = read_mutated(whole, read_records, leave, up_to_the_limit);
  EXPECT_GT(outcome.refused, 800);
}

TEST(MutatedShards, CompressedTarArchivesAreReadOrRefused) {
  const Outcome outcome = read_mutated(deflated(sample_tar(), Wrapping::gzip), read_archive, leave, up_to_the_limit);
  EXPECT_GT(outcome.refused, 800);
}

TEST(MutatedShards, DamageInsideOfAnIntactCompressionIsReadOrRefused) {
  const auto parse = [](const std::string& bytes) { read_archive(deflated(bytes, Wrapping::gzip)); };
  expect_both(read_mutated(sample_tar(), parse, repair_tar, up_to_the_limit));
}

TEST(MutatedShards, IdxFilesAreReadOrRefused) {
  const auto parse = [](const std::string& bytes) { read_idx(MemoryPath(bytes).path()); };
  expect_both(read_mutated(sample_idx(), parse, leave, in_proportion));
}

// The counter itself: what is not counted cannot be bounded.
TEST(MutatedShards, MemoryIsCounted) {
  const AllocationPeak peak;
  {
    const std::string large(1'000'000, 'x');
    EXPECT_EQ(large.back(), 'x');
  }
  EXPECT_GE(peak.bytes(), 1'000'000U);
  EXPECT_LT(peak.bytes(), 1'100'000U);
}

// Twice the content where a buffer grows by copying.
TEST(CompressedShards, TakeTheMemoryOfTheirContentOnce) {
  constexpr std::size_t kContent = std::size_t{48} << 20;
  const std::string bomb =
      deflated(tar_member({.name = "a", .data = std::string(kContent, 'a')}) + tar_end(), Wrapping::gzip);
  ASSERT_LT(bomb.size(), kContent / 500);
  const auto file = memory_file(bomb);
  const AllocationPeak peak;
  const auto inflated = inflate_file(*file, Compression::gzip, 2 * kContent);
  EXPECT_GT(inflated->size(), kContent);
  EXPECT_LT(peak.bytes(), kContent + (std::size_t{8} << 20));
}

// As much as the limit, however much would follow.
TEST(CompressedShards, TakeNoMoreMemoryThanTheirLimit) {
  const std::string bomb = deflated(std::string(std::size_t{48} << 20, 'a'), Wrapping::gzip);
  auto file = memory_file(bomb, "bomb.tar.gz");
  const AllocationPeak peak;
  constexpr std::uint64_t kLimit = std::uint64_t{16} << 20;
  EXPECT_THAT(message_of<EnvironmentError>([&] { TarFile(std::move(file), {.inflated_limit_bytes = kLimit}); }),
              AllOf(HasSubstr("'bomb.tar.gz'"), HasSubstr("at most 16777216 bytes")));
  EXPECT_LT(peak.bytes(), kLimit + (std::size_t{8} << 20));
}

}  // namespace
}  // namespace libtrain::data
