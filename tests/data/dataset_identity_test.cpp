#include <libtrain/data/dataset_identity.hpp>

#include <functional>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/text.hpp>

namespace libtrain::data {
namespace {

using Change = std::function<void(std::uint64_t index, SampleOrigin& origin)>;

DatasetIdentity identity_of(std::uint64_t size, const Change& change, const std::string& root = "/data/train") {
  return detail::describe_samples(size, root, [&](std::uint64_t index) {
    SampleOrigin origin{
        .path = text(root, root.ends_with('/') ? "" : "/", "cat/", index, ".jpg"), .offset = 512 * index, .bytes = 100};
    change(index, origin);
    return origin;
  });
}

const Change kNothing = [](std::uint64_t, SampleOrigin&) {};

TEST(DatasetIdentity, TellsWhereASampleDiffers) {
  for (const std::uint64_t size : {1, 7, 999, 1000, 1001, 12'345}) {
    const auto lines = identity_of(size, kNothing);
    EXPECT_LE(lines.size(), 1000u);
    const std::set<std::uint64_t> some{0, size / 3, size / 2 + 1, size - 1};
    for (const std::uint64_t changed : some) {
      if (changed >= size) continue;
      for (const Change& change : {Change([](std::uint64_t, SampleOrigin& origin) { origin.path += "x"; }),
                                   Change([](std::uint64_t, SampleOrigin& origin) { ++origin.offset; }),
                                   Change([](std::uint64_t, SampleOrigin& origin) { ++origin.bytes; })}) {
        const auto other = identity_of(size, [&](std::uint64_t index, SampleOrigin& origin) {
          if (index == changed) change(index, origin);
        });
        ASSERT_EQ(other.size(), lines.size());
        std::size_t different = 0;
        for (std::size_t line = 0; line < lines.size(); ++line) different += lines[line] != other[line] ? 1 : 0;
        EXPECT_EQ(different, 1u) << "sample " << changed << " of " << size;
        EXPECT_NE(detail::digest_of(other), detail::digest_of(lines));
      }
    }
  }
}

TEST(DatasetIdentity, IsThatOfACopyElsewhere) {
  for (const std::string root : {"az://container/a-1f0c2a9b", "/", "/data/train/"}) {
    EXPECT_EQ(identity_of(3000, kNothing, root), identity_of(3000, kNothing, "/data/train")) << root;
  }
  const auto unrooted = [](const std::string& folder) {
    return detail::describe_samples(
        20, "", [&](std::uint64_t index) { return SampleOrigin{.path = text(folder, "/cat/", index, ".jpg")}; });
  };
  EXPECT_EQ(unrooted("/data"), unrooted("/somewhere/else"));
}

TEST(DatasetIdentity, SaysWhichSamplesALineStandsFor) {
  const auto lines = identity_of(2500, kNothing);
  EXPECT_THAT(lines.front(), ::testing::StartsWith("samples 0 to 2, first 'cat/0.jpg', checksum "));
  EXPECT_THAT(lines.back(), ::testing::StartsWith("sample 2499, first 'cat/2499.jpg' at byte 1279488, checksum "));
}

TEST(DatasetIdentity, AsksForAFewMillionAtMost) {
  std::uint64_t asked = 0;
  detail::describe_samples(std::uint64_t{1} << 40, "", [&](std::uint64_t) {
    ++asked;
    return SampleOrigin{.path = "tokens"};
  });
  EXPECT_GT(asked, 1'500'000u);
  EXPECT_LT(asked, 2'500'000u);
}

TEST(DatasetIdentity, DigestsKeepLinesApart) {
  EXPECT_NE(detail::digest_of({"a", "b"}), detail::digest_of({"ab"}));
  EXPECT_NE(detail::digest_of({"a", "b"}), detail::digest_of({"b", "a"}));
  EXPECT_NE(detail::digest_of({}), 0u);
}

TEST(DatasetIdentity, SummariesShowTheFirstLinesAndTheLast) {
  EXPECT_EQ(detail::summary_of({"a", "b", "c", "d"}), "a; b; d");
  EXPECT_EQ(detail::summary_of({"a"}), "a");
  EXPECT_EQ(detail::summary_of({std::string(1000, 'x')}).size(), 200u);
}

}  // namespace
}  // namespace libtrain::data
