#include <libtrain/data/storage/detail/staging_manifest.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace libtrain::data::detail {
namespace {

using ::testing::IsEmpty;

const StagedFiles kFiles = {
    {"a", {.size = 1, .version = "1", .hash = {.high = 1, .low = 2}}},
    {"b c/%\n\x7f", {.size = 22, .version = "", .hash = {.high = 3, .low = 4}}},
    {"d", {.size = ~std::uint64_t{0}, .version = "\"0x8D F\"", .hash = {.high = 5, .low = 6}}},
};
const StagedTotals kTotals = {.files = 3, .bytes = 22};

std::string journal() {
  std::string text = manifest_head("memory://a set");
  for (const auto& [path, file] : kFiles) text += manifest_line(path, file);
  return text;
}

std::string manifest() {
  return journal() + manifest_end(journal(), kTotals);
}

TEST(StagingManifest, IsReadBack) {
  EXPECT_EQ(read_totals(manifest(), "memory://a set"), kTotals);
  EXPECT_EQ(read_files(manifest(), "memory://a set"), kFiles);
  EXPECT_EQ(read_files(journal(), "memory://a set"), kFiles);
}

TEST(StagingManifest, HasALinePerFile) {
  EXPECT_EQ(manifest_line("b c", {.size = 22, .version = "7%", .hash = {.high = 3, .low = 4}}),
            "file 00000000000000030000000000000004 22 =7%25 =b%20c\n");
  EXPECT_EQ(manifest_head("memory://a set"), "libtrain-staging 2 =memory://a%20set\n");
}

TEST(StagingManifest, OfAnotherSourceIsNotRead) {
  EXPECT_EQ(read_totals(manifest(), "memory://a"), std::nullopt);
  EXPECT_THAT(read_files(manifest(), "memory://a"), IsEmpty());
}

TEST(StagingManifest, OfSeveralLinesForAFileTheLastCounts) {
  const auto twice = journal() + manifest_line("a", {.size = 5, .version = "2", .hash = {}});
  EXPECT_EQ(read_files(twice, "memory://a set").at("a").size, 5u);
}

TEST(StagingManifest, CutShortGivesNoTotalsAndOnlyWholeLines) {
  const auto whole = manifest();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const auto part = whole.substr(0, length);
    EXPECT_EQ(read_totals(part, "memory://a set"), std::nullopt) << length;
    const auto files = read_files(part, "memory://a set");
    const auto lines = static_cast<std::size_t>(std::count(part.begin(), part.end(), '\n'));
    EXPECT_EQ(files.size(), std::max<std::size_t>(lines, 1) - 1) << length;  // the first line is the head
    for (const auto& [path, file] : files) EXPECT_EQ(kFiles.at(path), file) << length;
  }
}

TEST(StagingManifest, WithAnyByteChangedIsNotWhole) {
  const auto whole = manifest();
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const int bit : {0x01, 0x04, 0x20, 0x80}) {
      auto damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ bit);
      EXPECT_EQ(read_totals(damaged, "memory://a set"), std::nullopt) << at;
      EXPECT_LE(read_files(damaged, "memory://a set").size(), 4u);
    }
  }
}

TEST(StagingManifest, StopsAtALineThatIsNone) {
  const auto head = manifest_head("s");
  const auto good = manifest_line("a", {.size = 1, .version = "1", .hash = {}});
  for (const char* bad :
       {"\n", "file\n", "file x 1 =1 =b\n", "file 00000000000000030000000000000004 -1 =1 =b\n",
        "file 00000000000000030000000000000004 99999999999999999999 =1 =b\n",
        "file 00000000000000030000000000000004 1 1 =b\n", "file 00000000000000030000000000000004 1 =1 =b%\n",
        "file 00000000000000030000000000000004 1 =1 =b%4\n", "file 00000000000000030000000000000004 1 =1 =b%zz\n",
        "file 00000000000000030000000000000004 1 =1 =b more\n"}) {
    const auto text = head + good + bad + manifest_line("c", {.size = 1, .version = "1", .hash = {}});
    EXPECT_EQ(read_files(text, "s").size(), 1u) << bad;
  }
}

}  // namespace
}  // namespace libtrain::data::detail
