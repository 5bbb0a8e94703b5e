#include <libtrain/data/formats/run_length.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/sample_random.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Counts = std::vector<std::uint32_t>;
using Pixels = std::vector<std::uint8_t>;

Pixels decode(RunLengthView runs) {
  Pixels pixels(std::size_t{runs.height} * runs.width);
  decode_mask(runs, pixels);
  return pixels;
}

// Blots of a few pixels, so that runs have all lengths.
Pixels random_pixels(SampleRandom& random, std::size_t count) {
  Pixels pixels(count);
  std::uint8_t value = 0;
  for (auto& pixel : pixels) {
    if (random.uniform() < 0.3) value = value == 0 ? 1 : 0;
    pixel = value;
  }
  return pixels;
}

TEST(RunLength, RunsGoDownTheColumnsAndBeginWithZeros) {
  // 0 1 1
  // 0 0 1
  EXPECT_EQ(encode_mask(Pixels{0, 0, 1, 0, 1, 1}, 2, 3).counts, (Counts{2, 1, 1, 2}));
  EXPECT_EQ(encode_mask(Pixels{1, 1, 0, 0}, 2, 2).counts, (Counts{0, 2, 2}));
  EXPECT_EQ(encode_mask(Pixels(6), 3, 2).counts, Counts{6});
}

TEST(RunLength, DecodingGivesThePixelsBack) {
  SampleRandom random{1, 0, 0};
  for (int round = 0; round < 50; ++round) {
    const auto height = static_cast<std::uint32_t>(random.integer(1, 12));
    const auto width = static_cast<std::uint32_t>(random.integer(1, 12));
    const auto pixels = random_pixels(random, std::size_t{height} * width);
    EXPECT_EQ(decode(encode_mask(pixels, height, width)), pixels);
  }
}

TEST(RunLength, StringsAreThoseOfPycocotools) {
  // pycocotools 2.0.11: mask.frPyObjects({'size': [1, sum(counts)], 'counts': counts}, 1, sum(counts))['counts']
  const std::vector<std::pair<Counts, std::string>> cases{{{5, 3, 2}, "532"},
                                                          {{0, 4, 100, 7, 90}, "04T33F"},
                                                          {{1000, 1, 40000, 2, 39999, 500000}, "Xo01PRW11OnXX?"},
                                                          {{25}, "i0"}};
  for (const auto& [counts, string] : cases) {
    std::uint32_t pixels = 0;
    for (const auto count : counts) pixels += count;
    EXPECT_EQ(to_coco_string({1, pixels, counts}), string);
    EXPECT_EQ(from_coco_string(string, 1, pixels).counts, counts);
  }
}

TEST(RunLength, TheLargestCountsSurviveTheString) {
  const Counts counts{0x7ffffffe, 0, 0, 1};
  const auto string = to_coco_string({1, 0x7fffffff, counts});
  EXPECT_EQ(from_coco_string(string, 1, 0x7fffffff).counts, counts);
}

TEST(RunLength, DamagedStringsAreRefused) {
  const auto message = [](const std::string& encoded) {
    return message_of<EnvironmentError>([&] { from_coco_string(encoded, 2, 3); });
  };
  EXPECT_THAT(message("2 11"), AllOf(HasSubstr("character 1"), HasSubstr("2 x 3")));
  EXPECT_THAT(message("2111x"), HasSubstr("character 4"));
  EXPECT_THAT(message("\xff"), HasSubstr("character 0"));
  EXPECT_THAT(message("211"), HasSubstr("add up to 4 of 6"));
  EXPECT_THAT(message("9"), HasSubstr("of 6 pixels left"));
  EXPECT_THAT(message("O"), HasSubstr("is -1"));
  EXPECT_THAT(message("oooooooooooooooo"), HasSubstr("is truncated"));
  EXPECT_THAT(message("o"), HasSubstr("is truncated"));
  EXPECT_THAT(message(""), HasSubstr("add up to 0"));
  EXPECT_THROW(from_coco_string("0", 65536, 65536), UsageError);
}

TEST(RunLength, RunsThatDoNotFitThePictureAreRefused) {
  Pixels pixels(6);
  EXPECT_THROW(decode_mask({2, 3, Counts{2, 5}}, pixels), EnvironmentError);
  EXPECT_THROW(decode_mask({2, 3, Counts{2, 3}}, pixels), EnvironmentError);
  EXPECT_THROW(decode_mask({2, 3, Counts{4294967295u, 7}}, pixels), EnvironmentError);
  EXPECT_THROW(decode_mask({2, 2, Counts{4}}, pixels), UsageError);
  EXPECT_THROW(encode_mask(pixels, 2, 2), UsageError);
}

TEST(RunLength, AreaAndBoxAreThoseOfTheOnes) {
  // Rows 1 and 2 of columns 2 to 4 in a picture of 5 x 6.
  const RunLength mask{.height = 5, .width = 6, .counts = {11, 2, 3, 2, 3, 2, 7}};
  EXPECT_EQ(mask_area(mask), 6u);
  EXPECT_EQ(mask_box(mask), (BoundingBox{.x = 2, .y = 1, .width = 3, .height = 2}));
  EXPECT_EQ(mask_box(RunLength{.height = 5, .width = 6, .counts = {30}}), BoundingBox{});
}

TEST(RunLength, ARunOverTwoColumnsReachesFromTopToBottom) {
  EXPECT_EQ(mask_box(RunLength{.height = 4, .width = 4, .counts = {7, 2, 7}}),
            (BoundingBox{.x = 1, .y = 0, .width = 2, .height = 4}));
}

TEST(RunLength, RunsOfLengthZeroDoNotWidenTheBox) {
  // pycocotools 2.0.11: mask.toBbox(mask.frPyObjects({'size': [4, 4], 'counts': [0, 0, 0, 3, 13]}, 4, 4))
  EXPECT_EQ(mask_box(RunLength{.height = 4, .width = 4, .counts = {0, 0, 0, 3, 13}}),
            (BoundingBox{.x = 0, .y = 0, .width = 1, .height = 3}));
  EXPECT_EQ(mask_box(RunLength{.height = 2, .width = 3, .counts = {6, 0}}), BoundingBox{});
}

TEST(RunLength, MergingIsAndAndOrOfPixels) {
  SampleRandom random{2, 0, 0};
  for (int round = 0; round < 50; ++round) {
    const auto a = random_pixels(random, 35);
    const auto b = random_pixels(random, 35);
    const auto c = random_pixels(random, 35);
    Pixels any(35);
    Pixels all(35);
    for (std::size_t i = 0; i < 35; ++i) {
      any[i] = static_cast<std::uint8_t>(a[i] | b[i] | c[i]);
      all[i] = static_cast<std::uint8_t>(a[i] & b[i] & c[i]);
    }
    const std::vector<RunLength> masks{encode_mask(a, 7, 5), encode_mask(b, 7, 5), encode_mask(c, 7, 5)};
    const std::vector<RunLengthView> views(masks.begin(), masks.end());
    EXPECT_EQ(merge_masks(views, Merge::united), encode_mask(any, 7, 5));
    EXPECT_EQ(merge_masks(views, Merge::intersected), encode_mask(all, 7, 5));
  }
}

TEST(RunLength, MergingOneOrNone) {
  const RunLength mask{.height = 2, .width = 2, .counts = {1, 3}};
  EXPECT_EQ(merge_masks(std::vector<RunLengthView>{mask}, Merge::united), mask);
  EXPECT_EQ(merge_masks({}, Merge::united), RunLength{});
  const RunLength other{.height = 4, .width = 1, .counts = {4}};
  EXPECT_THAT(message_of<UsageError>([&] { merge_masks(std::vector<RunLengthView>{mask, other}, Merge::united); }),
              AllOf(HasSubstr("2 x 2"), HasSubstr("4 x 1")));
}

TEST(RunLength, OverlapsAreCountedInPixels) {
  SampleRandom random{3, 0, 0};
  for (int round = 0; round < 50; ++round) {
    const auto a = random_pixels(random, 30);
    const auto b = random_pixels(random, 30);
    double both = 0;
    double either = 0;
    double detection = 0;
    for (std::size_t i = 0; i < 30; ++i) {
      both += a[i] & b[i];
      either += a[i] | b[i];
      detection += a[i];
    }
    const auto first = encode_mask(a, 5, 6);
    const auto second = encode_mask(b, 5, 6);
    EXPECT_DOUBLE_EQ(mask_iou(first, second), both > 0 ? both / either : 0);
    EXPECT_DOUBLE_EQ(mask_iou(first, second, GroundTruth::crowd), both > 0 ? both / detection : 0);
  }
}

TEST(RunLength, OverlapsOfPicturesOfDifferentSizes) {
  const RunLength mask{.height = 2, .width = 2, .counts = {0, 4}};
  EXPECT_EQ(mask_iou(mask, RunLength{.height = 4, .width = 4, .counts = {0, 16}}), -1);
  EXPECT_EQ(mask_iou(mask, RunLength{.height = 4, .width = 4, .counts = {15, 1}}), 0);
}

TEST(BoundingBox, OverlapsAreThoseOfContinuousRectangles) {
  const BoundingBox box{.x = 0, .y = 0, .width = 4, .height = 2};
  EXPECT_DOUBLE_EQ(box_iou(box, {.x = 2, .y = 1, .width = 4, .height = 2}), 2.0 / 14);
  EXPECT_DOUBLE_EQ(box_iou(box, {.x = 2, .y = 1, .width = 4, .height = 2}, GroundTruth::crowd), 2.0 / 8);
  EXPECT_EQ(box_iou(box, {.x = 4, .y = 0, .width = 1, .height = 1}), 0);
  EXPECT_EQ(box_iou(box, {.x = 0, .y = 2, .width = 1, .height = 1}), 0);
}

}  // namespace
}  // namespace libtrain::data
