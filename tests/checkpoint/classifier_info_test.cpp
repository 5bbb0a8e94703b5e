#include <libtrain/checkpoint/classifier_info.hpp>

#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

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

const ClassifierInfo kBirds{.model = "resnet18",
                            .classes = {"chickens", "T\xc3\xa4uben \"x\"\n"},
                            .image_side = 32,
                            .short_side = 36,
                            .mean = {0.5},
                            .standard_deviation = {0.1}};

std::string refusal_of(const std::map<std::string, std::string>& metadata) {
  return message_of<EnvironmentError>([&] { read_classifier_info(metadata, "birds.safetensors"); });
}

std::string refusal_to_write(const ClassifierInfo& info) {
  return message_of<UsageError>([&] { classifier_metadata(info); });
}

TEST(ClassifierInfo, IsTextByPlainKeys) {
  EXPECT_THAT(classifier_metadata({.model = "resnet50", .classes = {"cat", "dog"}}),
              UnorderedElementsAre(Pair("format", "pt"), Pair("model", "resnet50"), Pair("classes", R"(["cat","dog"])"),
                                   Pair("image_side", "224"), Pair("short_side", "256"),
                                   Pair("mean", "[0.485,0.456,0.406]"), Pair("std", "[0.229,0.224,0.225]")));
}

TEST(ClassifierInfo, IsReadAsItWasWritten) {
  TemporaryFolder folder;
  const auto path = folder / "birds.safetensors";
  write_safetensors(path, {}, {}, classifier_metadata(kBirds));
  const auto read = read_classifier_info(path);
  EXPECT_EQ(read.model, kBirds.model);
  EXPECT_EQ(read.classes, kBirds.classes);
  EXPECT_EQ(read.image_side, kBirds.image_side);
  EXPECT_EQ(read.short_side, kBirds.short_side);
  EXPECT_EQ(read.mean, kBirds.mean);
  EXPECT_EQ(read.standard_deviation, kBirds.standard_deviation);
}

TEST(ClassifierInfo, IsImageNetsWithoutNamesWhereTheFileSaysNothing) {
  const auto info = read_classifier_info({{"format", "pt"}}, "model.safetensors");
  EXPECT_THAT(info.model, IsEmpty());
  EXPECT_THAT(info.classes, IsEmpty());
  EXPECT_EQ(info.image_side, 224);
  EXPECT_EQ(info.short_side, 256);
  EXPECT_THAT(info.mean, ElementsAre(0.485, 0.456, 0.406));
  EXPECT_THAT(info.standard_deviation, ElementsAre(0.229, 0.224, 0.225));
}

TEST(ClassifierInfo, OfAPthFileIsTheDefault) {
  TemporaryFolder folder;
  test::write_file(folder / "model.pth", "PK\3\4");  // what a zip archive begins with
  EXPECT_THAT(read_classifier_info(folder / "model.pth").classes, IsEmpty());
  EXPECT_THAT(message_of<EnvironmentError>([&] { read_classifier_info(folder / "absent"); }), HasSubstr("absent"));
}

TEST(ClassifierInfo, NamesFileAndKeyOfAMalformedValue) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> malformed{
      {"classes", {"", "cat, dog", "[]", "{}", R"("cat")", R"(["cat", 1])", R"(["cat"] x)", "[\"\xff\"]"}},
      {"image_side", {"", "0", "-1", "224.0", "257", "65536", "many"}},
      {"short_side", {"", "223", "65536", "0x100"}},
      {"mean", {"", "0.5", "[]", "[0.5, 0.5]", R"(["0.5"])", "[1e999]", "[null]", "[0.5, 0.5, true]"}},
      {"std", {"", "[0, 0, 0]", "[0.2, -0.2, 0.2]", "[0.2, 0.2, 0.2, 0.2]"}},
  };
  for (const auto& [key, values] : malformed) {
    for (const auto& value : values) {
      EXPECT_THAT(refusal_of({{key, value}}),
                  AllOf(HasSubstr("'birds.safetensors' has '" + key + "' = '" + value + "', which is "),
                        HasSubstr("Write the file again")));
    }
  }
}

TEST(ClassifierInfo, ShowsOnlyTheBeginningOfALongMalformedValue) {
  EXPECT_THAT(refusal_of({{"classes", std::string(1'000'000, 'x')}}),
              AllOf(HasSubstr("xxx...', which is"), ::testing::SizeIs(::testing::Lt(400))));
}

TEST(ClassifierInfo, RefusesAMeanAndADeviationOfDifferentChannels) {
  EXPECT_THAT(refusal_of({{"mean", "[0.5]"}}), HasSubstr("has a 'mean' of 1 channels and a 'std' of 3"));
}

TEST(ClassifierInfo, IsCheckedBeforeItIsWritten) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(refusal_to_write({.image_side = 0}), HasSubstr("an image_side of 0"));
  EXPECT_THAT(refusal_to_write({.image_side = 257}), HasSubstr("an image_side of 257 and a short_side of 256"));
  EXPECT_THAT(refusal_to_write({.short_side = 65536}), HasSubstr("a short_side of 65536"));
  EXPECT_THAT(refusal_to_write({.mean = {0.5}}), HasSubstr("the mean [0.5] and"));
  EXPECT_THAT(refusal_to_write({.mean = {0.5, 0.5, kNan}}), HasSubstr("[0.5, 0.5, nan]"));
  EXPECT_THAT(refusal_to_write({.standard_deviation = {1, 1, 0}}), HasSubstr("[1, 1, 0]"));
  EXPECT_THAT(refusal_to_write({.classes = {"cat", "\xe4"}}), HasSubstr("A name of a class is not UTF-8"));
  EXPECT_THAT(refusal_to_write({.model = "\xe4"}), HasSubstr("A name of the model is not UTF-8"));
}

}  // namespace
}  // namespace libtrain
