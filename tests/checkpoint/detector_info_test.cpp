#include <libtrain/checkpoint/detector_info.hpp>

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/checkpoint/safetensors.hpp>

#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain {
namespace {

using test::message_of;
using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

const DetectorInfo kShapes{.model = "tiny",
                           .classes = {"circle", "square"},
                           .category_ids = {1, -7},
                           .min_size = 128,
                           .max_size = 256,
                           .frozen_batch_norm = false};

std::string path_of_file_with(const TemporaryFolder& folder, const std::map<std::string, std::string>& metadata) {
  const std::string path = folder / "shapes.safetensors";
  write_safetensors(path, {}, {}, metadata);
  return path;
}

std::string detector_refusal(const std::map<std::string, std::string>& metadata) {
  const TemporaryFolder folder;
  const auto path = path_of_file_with(folder, metadata);
  return message_of<EnvironmentError>([&] { read_detector_info(path); });
}

std::string detector_refusal_to_write(const DetectorInfo& info) {
  return message_of<UsageError>([&] { detector_metadata(info); });
}

TEST(DetectorInfo, IsTextByPlainKeys) {
  EXPECT_THAT(
      detector_metadata(kShapes),
      UnorderedElementsAre(Pair("format", "pt"), Pair("model", "tiny"), Pair("classes", R"(["circle","square"])"),
                           Pair("category_ids", "[1,-7]"), Pair("min_size", "128"), Pair("max_size", "256"),
                           Pair("norm", "batch"), Pair("norm_epsilon", "[1e-05]")));
}

TEST(DetectorInfo, IsReadAsItWasWritten) {
  const TemporaryFolder folder;
  const auto read = read_detector_info(path_of_file_with(folder, detector_metadata(kShapes)));
  EXPECT_EQ(read.model, "tiny");
  EXPECT_THAT(read.classes, ElementsAre("circle", "square"));
  EXPECT_THAT(read.category_ids, ElementsAre(1, -7));
  EXPECT_EQ(read.min_size, 128);
  EXPECT_EQ(read.max_size, 256);
  EXPECT_FALSE(read.frozen_batch_norm);
  EXPECT_EQ(read.norm_epsilon, 1e-5);
}

TEST(DetectorInfo, HasDefaultsForFilesThatSayNothing) {
  const TemporaryFolder folder;
  const auto read = read_detector_info(path_of_file_with(folder, {{"format", "pt"}}));
  EXPECT_EQ(read.model, "");
  EXPECT_THAT(read.classes, IsEmpty());
  EXPECT_EQ(read.min_size, 800);
  EXPECT_EQ(read.max_size, 1333);
}

TEST(DetectorInfo, NamesFileAndKeyOfAWrongValue) {
  EXPECT_THAT(detector_refusal({{"min_size", "0"}}),
              AllOf(HasSubstr("shapes.safetensors"), HasSubstr("'min_size' = '0'")));
  EXPECT_THAT(detector_refusal({{"max_size", "600"}}), HasSubstr("no whole number from 800 to 65535"));
  EXPECT_THAT(detector_refusal({{"norm", "layer"}}), HasSubstr("neither frozen nor batch"));
  EXPECT_THAT(detector_refusal({{"norm_epsilon", "-1"}}), HasSubstr("no JSON list of one number from 0 to 1"));
  EXPECT_THAT(detector_refusal({{"classes", "circle"}}), HasSubstr("no JSON list of strings"));
  EXPECT_THAT(detector_refusal({{"classes", R"(["a"])"}, {"category_ids", "[1,2]"}}),
              HasSubstr("no JSON list of whole numbers, one for each class"));
  EXPECT_THAT(detector_refusal({{"classes", R"(["a"])"}, {"category_ids", "[1.5]"}}),
              HasSubstr("'category_ids' = '[1.5]'"));
}

TEST(DetectorInfo, RefusesToWriteWhatCannotBeRead) {
  EXPECT_THAT(detector_refusal_to_write({.min_size = 300, .max_size = 200}),
              HasSubstr("min_size of 300 and a max_size of 200"));
  EXPECT_THAT(detector_refusal_to_write({.classes = {"a", "b"}, .category_ids = {1}}),
              HasSubstr("2 classes and 1 category_ids"));
  EXPECT_THAT(detector_refusal_to_write({.classes = {"\xff"}, .category_ids = {1}}), HasSubstr("not UTF-8"));
}

}  // namespace
}  // namespace libtrain
