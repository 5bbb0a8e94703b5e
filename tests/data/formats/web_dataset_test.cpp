#include <libtrain/data/formats/web_dataset.hpp>

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/data/formats/tar_bytes.hpp>
#include <tests/data/memory_file.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Every member holds its own name.
WebDatasetShard shard(const std::vector<std::string>& names) {
  std::string bytes;
  for (const auto& name : names) bytes += tar_member({.name = name, .data = name});
  return WebDatasetShard(TarFile(memory_file(bytes + tar_end(), "train-0.tar")));
}

std::vector<std::string> keys(const WebDatasetShard& samples) {
  std::vector<std::string> result;
  for (std::uint64_t i = 0; i < samples.size(); ++i) result.emplace_back(samples.key(i));
  return result;
}

TEST(WebDataset, SplitsNamesAtTheFirstDotOfTheirLastPart) {
  const auto split = [](std::string_view name) {
    const auto result = split_web_dataset_name(name);
    return result ? std::string{result->key} + "|" + result->extension : std::string{"none"};
  };
  EXPECT_EQ(split("17.jpg"), "17|jpg");
  EXPECT_EQ(split("a.b/17.Seg.PNG"), "a.b/17|seg.png");
  EXPECT_EQ(split("./a/17.jpg"), "./a/17|jpg");
  EXPECT_EQ(split("17."), "17|");
  EXPECT_EQ(split("README"), "none");
  EXPECT_EQ(split("a.b/README"), "none");
  EXPECT_EQ(split(".hidden.jpg"), "none");
  EXPECT_EQ(split("a/._17.jpg"), "none");
  EXPECT_EQ(split("__index__"), "none");
  EXPECT_EQ(split("__meta__/a.json"), "none");
  EXPECT_EQ(split("__meta__.json"), "__meta__|json");
  EXPECT_EQ(split("a/__meta__.json"), "a/__meta__|json");
}

TEST(WebDataset, JoinsMembersInARow) {
  const WebDatasetShard samples = shard({"a/1.jpg", "a/1.CLS", "a/2.jpg", "b/2.jpg", "b/2.seg.png"});
  EXPECT_EQ(samples.name(), "train-0.tar");
  EXPECT_THAT(keys(samples), ElementsAre("a/1", "a/2", "b/2"));
  EXPECT_THAT(samples.extensions(0), ElementsAre("jpg", "cls"));
  EXPECT_THAT(samples.extensions(1), ElementsAre("jpg"));
  EXPECT_THAT(samples.extensions(2), ElementsAre("jpg", "seg.png"));
}

TEST(WebDataset, ReadsByExtension) {
  const WebDatasetShard samples = shard({"1.jpg", "1.CLS", "2.jpg"});
  std::string data;
  samples.read(0, "cls", data);
  EXPECT_EQ(data, "1.CLS");
  samples.read(1, "jpg", data);
  EXPECT_EQ(data, "2.jpg");
  EXPECT_EQ(samples.find(0, "cls"), 1U);
  EXPECT_EQ(samples.find(1, "cls"), std::nullopt);
  EXPECT_EQ(samples.archive().member_name(*samples.find(1, "jpg")), "2.jpg");
}

TEST(WebDataset, SkipsWhatBelongsToNoSampleWithoutEndingASample) {
  const WebDatasetShard samples = shard({"__info__", "1.jpg", "README", "__meta__/1.json", "1.cls", "2.jpg"});
  EXPECT_THAT(keys(samples), ElementsAre("1", "2"));
  EXPECT_THAT(samples.extensions(0), ElementsAre("jpg", "cls"));
}

TEST(WebDataset, BeginsANewSampleWhereAKeyComesBack) {
  const WebDatasetShard samples = shard({"1.jpg", "2.jpg", "1.jpg"});
  EXPECT_THAT(keys(samples), ElementsAre("1", "2", "1"));
}

TEST(WebDataset, RefusesAnExtensionTwiceInASample) {
  EXPECT_THAT(message_of<EnvironmentError>([] { shard({"0.jpg", "1.jpg", "1.cls", "1.JPG"}); }),
              AllOf(HasSubstr("'train-0.tar', member '1.JPG' at byte offset 3584"), HasSubstr("sample '1'"),
                    HasSubstr("found 'jpg' again")));
}

TEST(WebDataset, NamesSampleAndExtensionsWhereOneIsMissing) {
  const WebDatasetShard samples = shard({"1.jpg", "1.json"});
  std::string data;
  EXPECT_THAT(message_of<EnvironmentError>([&] { samples.read(0, "cls", data); }),
              AllOf(HasSubstr("'train-0.tar', sample '1'"), HasSubstr("'cls'"), HasSubstr("'jpg', 'json'")));
}

TEST(WebDataset, HasNoSamplesInAnEmptyArchive) {
  const WebDatasetShard samples = shard({});
  EXPECT_EQ(samples.size(), 0U);
  EXPECT_THROW(samples.key(0), UsageError);
  EXPECT_THROW(samples.extensions(0), UsageError);
  EXPECT_THROW(samples.find(0, "jpg"), UsageError);
}

}  // namespace
}  // namespace libtrain::data
