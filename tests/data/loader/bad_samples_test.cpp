#include <libtrain/data/loader/bad_samples.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <libtrain/base/error.hpp>

#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

BadSample bad(std::uint64_t index, const std::string& path = "a.jpg") {
  return {.epoch = 3,
          .index = index,
          .origin = {.path = path, .offset = 17},
          .reason = "JPEG '" + path + "' is cut off.",
          .replacement = index + 1};
}

std::vector<nlohmann::json> lines_of(const std::filesystem::path& folder) {
  std::ifstream file(folder / "bad_samples.jsonl");
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST(BadSamples, AreListedOnce) {
  const TemporaryFolder folder;
  BadSamples samples({.maximum_count = 10}, 100, 2, folder.path() / "made" / "for it");
  samples.add(bad(5));
  samples.add(bad(7, "b\xff.jpg"));
  samples.add(bad(5));
  EXPECT_EQ(samples.size(), 2u);
  const auto lines = lines_of(folder.path() / "made" / "for it");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], (nlohmann::json{{"rank", 2},
                                      {"epoch", 3},
                                      {"index", 5},
                                      {"path", "a.jpg"},
                                      {"offset", 17},
                                      {"reason", "JPEG 'a.jpg' is cut off."},
                                      {"replacement", 6}}));
  EXPECT_EQ(lines[1].at("index"), 7);
}

TEST(BadSamples, OfSeveralRanksAreListedInOneFile) {
  const TemporaryFolder folder;
  BadSamples first({.maximum_count = 10}, 100, 0, folder.path());
  BadSamples second({.maximum_count = 10}, 100, 1, folder.path());
  first.add(bad(1));
  second.add(bad(2));
  first.add(bad(3));
  std::vector<int> ranks;
  for (const auto& line : lines_of(folder.path())) ranks.push_back(line.at("rank"));
  EXPECT_EQ(ranks, (std::vector<int>{0, 1, 0}));
}

std::string error_after(const BadSampleOptions& options, std::uint64_t dataset_size, std::uint64_t tolerated) {
  const TemporaryFolder folder;
  BadSamples samples(options, dataset_size, 0, folder.path());
  for (std::uint64_t i = 0; i < tolerated; ++i) samples.add(bad(i));
  try {
    samples.add(bad(tolerated));
  } catch (const EnvironmentError& error) {
    EXPECT_EQ(lines_of(folder.path()).size(), tolerated + 1);
    return error.what();
  }
  return "no error";
}

TEST(BadSamples, BeyondTheCountAreAnError) {
  EXPECT_THAT(error_after({.maximum_count = 3}, 1000, 3),
              AllOf(HasSubstr("more than 3 of 1000 samples"), HasSubstr("bad_samples.jsonl"), HasSubstr("sample 3"),
                    HasSubstr("JPEG 'a.jpg' is cut off.")));
}

TEST(BadSamples, BeyondTheRateAreAnError) {
  EXPECT_THAT(error_after({.maximum_count = 100, .maximum_rate = 0.005}, 1000, 5), HasSubstr("more than 5 of 1000"));
}

TEST(BadSamples, MustKeepToTheLowerOfTwoLimits) {
  EXPECT_THAT(error_after({.maximum_count = 3, .maximum_rate = 0.5}, 1000, 3), HasSubstr("more than 3 of 1000"));
}

TEST(BadSamples, RatesAreRoundedDownAndMayBeOne) {
  EXPECT_THAT(error_after({.maximum_rate = 0.0059}, 1000, 5), HasSubstr("more than 5 of 1000"));
  // In floating point 0.29 * 100 is less than 29.
  EXPECT_THAT(error_after({.maximum_rate = 0.29}, 100, 29), HasSubstr("more than 29 of 100"));
  const TemporaryFolder folder;
  BadSamples all({.maximum_rate = 1.0}, 3, 0, folder.path());
  for (std::uint64_t i = 0; i < 3; ++i) all.add(bad(i));
  EXPECT_EQ(all.size(), 3u);
}

TEST(BadSamples, AreNotAllowedByDefault) {
  EXPECT_FALSE(BadSamples({}, 10, 0, {}).are_allowed());
  EXPECT_FALSE(BadSamples({.maximum_count = 5, .maximum_rate = 0.01}, 10, 0, {}).are_allowed());
  EXPECT_TRUE(BadSamples({.maximum_count = 5}, 10, 0, {}).are_allowed());
  EXPECT_TRUE(BadSamples({.maximum_rate = 0.1}, 10, 0, {}).are_allowed());
}

TEST(BadSamples, AreCountedIfTheListCannotBeWritten) {
  BadSamples samples({.maximum_count = 1}, 10, 0, "/proc/no such folder");
  samples.add(bad(1));
  EXPECT_EQ(samples.size(), 1u);
  EXPECT_THROW(samples.add(bad(2)), EnvironmentError);
  EXPECT_THROW(samples.add(bad(2)), EnvironmentError);  // and again
}

// As in one run, except that the list may be in another folder.
TEST(BadSamples, GoOnCountingWhereAnotherRunStopped) {
  const TemporaryFolder folder;
  BadSamples samples({.maximum_count = 3}, 100, 0, folder.path());
  samples.resume({9, 4});
  EXPECT_EQ(samples.size(), 2u);
  EXPECT_TRUE(lines_of(folder.path()).empty());
  samples.add(bad(4));
  samples.add(bad(7));
  EXPECT_EQ(samples.indices(), (std::vector<std::uint64_t>{4, 7, 9}));
  EXPECT_EQ(lines_of(folder.path()).size(), 2u);
  EXPECT_THROW(samples.add(bad(8)), EnvironmentError);
}

TEST(BadSamples, RefuseToGoOnBeyondTheLimit) {
  BadSamples samples({.maximum_count = 3}, 100, 0, {});
  EXPECT_NO_THROW(samples.resume({1, 2, 3}));
  EXPECT_NO_THROW(samples.resume({3, 2, 1}));
  EXPECT_THROW(samples.resume({4}), EnvironmentError);
  EXPECT_THROW(BadSamples({}, 100, 0, {}).resume({1}), EnvironmentError);
  EXPECT_THROW(samples.resume({100}), UsageError);
}

TEST(BadSamples, RefuseARateThatIsNone) {
  EXPECT_THROW(BadSamples({.maximum_rate = 1.5}, 10, 0, {}), UsageError);
  EXPECT_THROW(BadSamples({.maximum_rate = -0.1}, 10, 0, {}), UsageError);
  EXPECT_THROW(BadSamples({.maximum_rate = std::nan("")}, 10, 0, {}), UsageError);
}

TEST(BadSamples, ReplacementsDependOnAllThatNamesThem) {
  std::set<std::uint64_t> different;
  const std::uint64_t size = std::uint64_t{1} << 40;
  different.insert(replacement_of(5, 1, 2, 0, size));
  different.insert(replacement_of(6, 1, 2, 0, size));
  different.insert(replacement_of(5, 2, 2, 0, size));
  different.insert(replacement_of(5, 1, 3, 0, size));
  different.insert(replacement_of(5, 1, 2, 1, size));
  EXPECT_EQ(different.size(), 5u);
  EXPECT_EQ(replacement_of(5, 1, 2, 0, size), replacement_of(5, 1, 2, 0, size));
  std::vector<int> hits(10);
  for (std::uint64_t epoch = 0; epoch < 100; ++epoch) {
    for (std::uint64_t index = 0; index < 10; ++index) ++hits[replacement_of(index, 0, epoch, 0, 10)];
  }
  for (const int count : hits) EXPECT_NEAR(count, 100, 50);  // 5 standard deviations
}

TEST(BadSamples, AreReplacedByAnyOtherSample) {
  for (const std::uint64_t size : {2, 3, 7}) {
    for (std::uint64_t index = 0; index < size; ++index) {
      std::set<std::uint64_t> others;
      for (std::uint64_t attempt = 0; attempt < 200; ++attempt) {
        others.insert(replacement_of(index, 1, 2, attempt, size));
      }
      EXPECT_EQ(others.size(), size - 1) << index << " of " << size;
      EXPECT_FALSE(others.contains(index)) << index << " of " << size;
      EXPECT_LT(*others.rbegin(), size);
    }
  }
}

}  // namespace
}  // namespace libtrain::data
