#include <libtrain/data/coco_evaluation.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/coco_results.hpp>
#include <libtrain/data/sample_random.hpp>
#include <tests/data/memory_file.hpp>
#include <tests/support/log_sinks.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

struct Object {
  std::int64_t id = 1;
  BoundingBox box = {.x = 0, .y = 0, .width = 10, .height = 10};
  double area = 100;
  bool crowd = false;
  std::int64_t image = 1;
  std::int64_t category = 1;
};

// A ground truth of the images 1 and 2, of 200 x 100 pixels, and the categories 1 and 2.
CocoAnnotations truth_of(const std::vector<Object>& objects, bool with_masks = true) {
  std::string json = R"({"images": [{"id": 2, "width": 200, "height": 100, "file_name": ""},
                                    {"id": 1, "width": 200, "height": 100, "file_name": ""}],
                         "categories": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}], "annotations": [)";
  for (const auto& object : objects) {
    const auto& [x, y, width, height] = object.box;
    const double right = x + width;
    const double bottom = y + height;
    if (json.back() == '}') json += ',';
    json += text(R"({"id": )", object.id, R"(, "image_id": )", object.image, R"(, "category_id": )", object.category,
                 R"(, "bbox": [)", x, ",", y, ",", width, ",", height, R"(], "area": )", object.area,
                 R"(, "iscrowd": )", object.crowd ? 1 : 0);
    if (with_masks) {
      json += text(R"(, "segmentation": [[)", x, ",", y, ",", right, ",", y, ",", right, ",", bottom, ",", x, ",",
                   bottom, "]]");
    }
    json += "}";
  }
  const libtrain::test::SilentLog silence;  // for objects with the id 0
  return read_coco(*memory_file(json + "]}"), {.use = CocoUse::evaluation});
}

CocoResult result(double score, const BoundingBox& box = {.x = 0, .y = 0, .width = 10, .height = 10},
                  std::int64_t category = 1, std::int64_t image = 1) {
  return {.image_id = image, .category_id = category, .score = score, .box = box};
}

const BoundingBox kElsewhere{.x = 100, .y = 50, .width = 10, .height = 10};

CocoEvaluation evaluate(const std::vector<Object>& objects, const std::vector<CocoResult>& results) {
  const auto truth = truth_of(objects);
  return evaluate_coco(truth, link_coco_results(results, truth, CocoIouType::boxes));
}

CocoStats stats_of(const std::vector<Object>& objects, const std::vector<CocoResult>& results) {
  return evaluate(objects, results).stats;
}

TEST(CocoEvaluation, APerfectDetectionHasOneEverywhereWithinItsSize) {
  const auto stats = stats_of({{}}, {result(0.5)});
  for (const std::size_t each : {0, 1, 2, 3, 6, 7, 8, 9}) EXPECT_NEAR(stats[each], 1, 1e-15) << each;
  for (const std::size_t each : {4, 5, 10, 11}) EXPECT_EQ(stats[each], -1) << each;  // no object of that size
}

TEST(CocoEvaluation, WithoutDetectionsEverythingIsZeroAndWithoutObjectsMinusOne) {
  EXPECT_EQ(stats_of({{}}, {})[0], 0);
  EXPECT_EQ(stats_of({{}}, {})[8], 0);
  EXPECT_THAT(stats_of({}, {result(0.5)}), Each(-1));
  EXPECT_THAT(stats_of({{.crowd = true}}, {result(0.5)}), Each(-1));
}

TEST(CocoEvaluation, APrecisionIsTheBestOfThatRecallOrMore) {
  const std::vector<Object> objects{{.id = 1}, {.id = 2, .box = kElsewhere}};
  const BoundingBox nowhere{.x = 50, .y = 50, .width = 10, .height = 10};
  // Precisions of 1/2 and 2/3 where the first and the second object are found.
  const auto stats = stats_of(objects, {result(0.9, nowhere), result(0.8), result(0.7, kElsewhere)});
  EXPECT_NEAR(stats[0], 2.0 / 3, 1e-12);
  EXPECT_EQ(stats[6], 0);  // the best detection of the image is wrong
  EXPECT_EQ(stats[7], 1);
  EXPECT_EQ(stats[8], 1);
}

TEST(CocoEvaluation, APrecisionIsZeroWhereTheRecallIsNotReached) {
  const auto stats = stats_of({{.id = 1}, {.id = 2, .box = kElsewhere}}, {result(0.8)});
  EXPECT_NEAR(stats[0], 51.0 / 101, 1e-12);  // recalls 0, 0.01, ... 0.5
  EXPECT_EQ(stats[8], 0.5);
}

TEST(CocoEvaluation, AThresholdIsReachedByItsExactOverlap) {
  const BoundingBox half{.x = 0, .y = 0, .width = 10, .height = 5};
  const auto stats = stats_of({{}}, {result(0.8, half)});
  EXPECT_NEAR(stats[1], 1, 1e-12);
  EXPECT_NEAR(stats[0], 0.1, 1e-12);
  EXPECT_EQ(stats[2], 0);
}

TEST(CocoEvaluation, AnObjectIsTakenOnce) {
  const auto stats = stats_of({{}, {.id = 2, .box = kElsewhere}}, {result(0.9), result(0.8), result(0.7, kElsewhere)});
  EXPECT_NEAR(stats[0], (51 + 50 * 2.0 / 3) / 101, 1e-12);
}

TEST(CocoEvaluation, AmongEqualOverlapsTheLastObjectIsTaken) {
  // That with the id 0 is none for pycocotools, so that the numbers tell which one has been taken.
  EXPECT_NEAR(stats_of({{.id = 0}, {.id = 1}}, {result(0.5)})[0], 51.0 / 101, 1e-12);
  EXPECT_EQ(stats_of({{.id = 1}, {.id = 0}}, {result(0.5)})[0], 0);
  const auto stats = stats_of({{.id = 1}, {.id = 0}}, {result(0.5), result(0.4)});
  EXPECT_NEAR(stats[0], 0.5 * 51 / 101, 1e-12);  // the second one finds the first object, after a wrong one
  EXPECT_EQ(stats[8], 0.5);
}

TEST(CocoEvaluation, AmongEqualScoresTheFirstDetectionComesFirst) {
  EXPECT_NEAR(stats_of({{}}, {result(0.5), result(0.5, kElsewhere)})[0], 1, 1e-12);
  EXPECT_NEAR(stats_of({{}}, {result(0.5, kElsewhere), result(0.5)})[0], 0.5, 1e-12);
}

TEST(CocoEvaluation, AmongEqualScoresTheImageOfTheLowerIdComesFirst) {
  const auto wrong = result(0.5, kElsewhere, 1, 2);
  EXPECT_NEAR(stats_of({{}}, {wrong, result(0.5)})[0], 1, 1e-12);
  EXPECT_NEAR(stats_of({{.image = 2}}, {result(0.5, {}, 1, 2), result(0.5, kElsewhere)})[0], 0, 1e-12);
  EXPECT_NEAR(stats_of({{.image = 2}},
                       {result(0.5, {.x = 0, .y = 0, .width = 10, .height = 10}, 1, 2), result(0.5, kElsewhere)})[0],
              0.5, 1e-12);
}

TEST(CocoEvaluation, CrowdsAreNeitherFoundNorMissed) {
  const Object crowd{.id = 2, .box = {.x = 50, .y = 0, .width = 100, .height = 100}, .area = 10000, .crowd = true};
  const BoundingBox within{.x = 60, .y = 10, .width = 10, .height = 10};
  const auto stats = stats_of({{.id = 1}, crowd}, {result(0.9, within), result(0.8, within), result(0.7)});
  EXPECT_NEAR(stats[0], 1, 1e-12);
  EXPECT_EQ(stats[6], 0);  // they count among the detections of an image
  EXPECT_EQ(stats[8], 1);
}

TEST(CocoEvaluation, AnObjectIsPreferredToACrowdThatOverlapsMore) {
  const BoundingBox box{.x = 0, .y = 0, .width = 12, .height = 10};
  const Object crowd{.id = 2, .box = box, .area = 120, .crowd = true};
  EXPECT_NEAR(stats_of({crowd, {.id = 1}}, {result(0.9, box)})[1], 1, 1e-12);
}

TEST(CocoEvaluation, AreaRangesIncludeBothEnds) {
  const BoundingBox box{.x = 0, .y = 0, .width = 32, .height = 32};
  const auto stats = stats_of({{.box = box, .area = 32 * 32}}, {result(0.5, box)});
  EXPECT_NEAR(stats[3], 1, 1e-12);
  EXPECT_NEAR(stats[4], 1, 1e-12);
  EXPECT_EQ(stats[5], -1);
  const auto large = stats_of({{.box = box, .area = 96 * 96}}, {result(0.5, box)});
  EXPECT_EQ(large[3], -1);
  EXPECT_NEAR(large[4], 1, 1e-12);
  EXPECT_NEAR(large[5], 1, 1e-12);
}

TEST(CocoEvaluation, DetectionsOfAnotherSizeAreNotWrong) {
  const BoundingBox large{.x = 50, .y = 0, .width = 100, .height = 100};
  const std::vector<Object> objects{{.id = 1}, {.id = 2, .box = large, .area = 10000}};
  // The first matches nothing and is large; the second matches a large object.
  const BoundingBox unmatched{.x = 0, .y = 0, .width = 200, .height = 50};
  const auto stats = stats_of(objects, {result(0.9, unmatched), result(0.8, large), result(0.7)});
  EXPECT_NEAR(stats[3], 1, 1e-12);
  EXPECT_NEAR(stats[5], 0.5, 1e-12);
}

TEST(CocoEvaluation, OneHundredDetectionsOfAnImageAndCategoryCount) {
  std::vector<CocoResult> results(99, result(0.9, kElsewhere));
  results.push_back(result(0.1));
  EXPECT_NEAR(stats_of({{}}, results)[0], 0.01, 1e-12);
  results.push_back(result(0.9, kElsewhere, 2));
  EXPECT_NEAR(stats_of({{}}, results)[0], 0.01, 1e-12);
  results.push_back(result(0.9, kElsewhere));
  EXPECT_EQ(stats_of({{}}, results)[0], 0);
}

TEST(CocoEvaluation, CategoriesWithoutObjectsAreLeftOutOfTheMean) {
  const auto one = evaluate({{}}, {result(0.5), result(0.9, kElsewhere, 2)});
  EXPECT_NEAR(one.stats[0], 1, 1e-12);
  ASSERT_EQ(one.category_stats.size(), 2u);
  EXPECT_EQ(one.category_stats[0], one.stats);
  EXPECT_THAT(one.category_stats[1], Each(-1));
  const auto both = evaluate({{}, {.id = 2, .category = 2}}, {result(0.5), result(0.9, kElsewhere, 2)});
  EXPECT_NEAR(both.stats[0], 0.5, 1e-12);
}

CocoResult with_mask(CocoResult result, const BoundingBox& box, std::uint32_t height = 100) {
  std::vector<std::uint8_t> pixels(std::size_t{height} * 200);
  for (auto x = static_cast<std::size_t>(box.x); x < static_cast<std::size_t>(box.x + box.width); ++x) {
    for (auto y = static_cast<std::size_t>(box.y); y < static_cast<std::size_t>(box.y + box.height); ++y) {
      pixels[x * height + y] = 1;
    }
  }
  result.mask = encode_mask(pixels, height, 200);
  return result;
}

TEST(CocoEvaluation, MasksOverlapByTheirPixels) {
  const auto truth = truth_of({{}});
  const BoundingBox upper{.x = 0, .y = 0, .width = 10, .height = 6};
  const std::vector<CocoResult> results{with_mask(result(0.5), upper)};
  const auto evaluated = [&](CocoIouType type) {
    return evaluate_coco(truth, link_coco_results(results, truth, type), {.type = type}).stats;
  };
  EXPECT_NEAR(evaluated(CocoIouType::boxes)[0], 1, 1e-12);
  EXPECT_NEAR(evaluated(CocoIouType::masks)[0], 0.3, 1e-12);  // 60 of 100 pixels: thresholds 0.5, 0.55 and 0.6
}

TEST(CocoEvaluation, ACrowdDividesByTheAreaOfTheMask) {
  const auto truth = truth_of({{.id = 1, .box = kElsewhere}, {.id = 2, .crowd = true}});
  const BoundingBox corner{.x = 0, .y = 0, .width = 3, .height = 3};
  const std::vector<CocoResult> results{with_mask(result(0.9), corner), with_mask(result(0.5), kElsewhere)};
  const auto stats =
      evaluate_coco(truth, link_coco_results(results, truth, CocoIouType::masks), {.type = CocoIouType::masks}).stats;
  EXPECT_NEAR(stats[0], 1, 1e-12);
}

TEST(CocoEvaluation, WithoutAMaskTheBoxIsIt) {
  const auto truth = truth_of({{}});
  const auto boxes = link_coco_results(std::vector{result(0.5)}, truth, CocoIouType::boxes);
  EXPECT_NEAR(evaluate_coco(truth, boxes, {.type = CocoIouType::masks}).stats[0], 1, 1e-12);
}

TEST(CocoEvaluation, MasksOfDifferentSizesDoNotOverlap) {
  const auto truth = truth_of({{}});
  const libtrain::test::SilentLog silence;
  const auto runs = to_coco_string(*with_mask(result(0.5), {.x = 0, .y = 0, .width = 10, .height = 10}, 101).mask);
  const auto results = read_coco_results(*memory_file(R"([{"image_id": 1, "category_id": 1, "score": 1,
      "segmentation": {"size": [101, 200], "counts": ")" +
                                                      runs + "\"}}]"),
                                         truth);
  EXPECT_EQ(evaluate_coco(truth, results, {.type = CocoIouType::masks}).stats[0], 0);
}

TEST(CocoEvaluation, DoesNotDependOnThreads) {
  SampleRandom random{7, 0, 0};
  const auto box = [&] {
    return BoundingBox{.x = static_cast<double>(random.integer(0, 9)) * 10,
                       .y = static_cast<double>(random.integer(0, 4)) * 10,
                       .width = static_cast<double>(random.integer(1, 4)) * 10,
                       .height = static_cast<double>(random.integer(1, 4)) * 10};
  };
  std::vector<Object> objects;
  std::vector<CocoResult> results;
  for (int number = 1; number <= 300; ++number) {
    const BoundingBox of_object = box();
    objects.push_back({.id = number,
                       .box = of_object,
                       .area = of_object.width * of_object.height,
                       .crowd = number % 9 == 0,
                       .image = random.integer(1, 2),
                       .category = random.integer(1, 2)});
    results.push_back(result(random.integer(0, 5), box(), random.integer(1, 2), random.integer(1, 2)));
  }
  const auto truth = truth_of(objects);
  for (const auto type : {CocoIouType::boxes, CocoIouType::masks}) {
    const auto detections = link_coco_results(results, truth, CocoIouType::boxes);
    const auto expected = evaluate_coco(truth, detections, {.type = type});
    EXPECT_GT(expected.stats[0], 0);
    for (const int threads : {2, 5}) {
      const auto found = evaluate_coco(truth, detections, {.type = type, .threads = threads});
      EXPECT_EQ(found.stats, expected.stats);
      EXPECT_EQ(found.category_stats, expected.category_stats);
    }
  }
}

TEST(CocoEvaluation, ResultsOfRanksHaveTheNumbersOfOneProcess) {
  SampleRandom random{8, 0, 0};
  constexpr int kImages = 40;
  std::string images;
  std::string annotations;
  std::vector<CocoResult> results;
  for (int image = 1; image <= kImages; ++image) {
    images += text(image > 1 ? "," : "", R"({"id": )", image, R"(, "width": 200, "height": 100, "file_name": ""})");
    annotations += text(image > 1 ? "," : "", R"({"id": )", image, R"(, "image_id": )", image,
                        R"(, "category_id": 1, "bbox": [0, 0, 10, 10], "area": 100})");
    for (int number = 0; number < 5; ++number) {
      const BoundingBox box{.x = static_cast<double>(random.integer(0, 9)), .y = 0, .width = 10, .height = 10};
      results.push_back(with_mask(result(random.integer(0, 2), box, 1, image), box));
    }
  }
  const auto truth = read_coco(*memory_file(R"({"images": [)" + images + R"(], "annotations": [)" + annotations +
                                            R"(], "categories": [{"id": 1, "name": ""}]})"));
  const auto stats_of_ranks = [&](int ranks) {
    std::string gathered;
    for (int rank = ranks - 1; rank >= 0; --rank) {
      std::vector<CocoResult> of_rank;
      for (const auto& each : results) {
        if (each.image_id % ranks == rank) of_rank.push_back(each);
      }
      gathered += pack_coco_results(of_rank);
    }
    return evaluate_coco(truth, link_coco_results(unpack_coco_results(gathered), truth, CocoIouType::boxes)).stats;
  };
  EXPECT_GT(stats_of_ranks(1)[0], 0);
  for (const int ranks : {2, 3, 4, 64}) EXPECT_EQ(stats_of_ranks(ranks), stats_of_ranks(1));
}

TEST(CocoEvaluation, WhatCannotBeEvaluatedIsRefused) {
  const auto truth = truth_of({{}}, false);
  const auto detections = link_coco_results(std::vector{result(0.5)}, truth, CocoIouType::boxes);
  EXPECT_THAT(message_of<UsageError>([&] { evaluate_coco(truth, detections, {.threads = 0}); }), HasSubstr("threads"));
  EXPECT_THAT(message_of<UsageError>([&] { evaluate_coco(truth, {}); }),
              AllOf(HasSubstr("for 0 images"), HasSubstr("has 2")));
  EXPECT_THAT(message_of<EnvironmentError>([&] { evaluate_coco(truth, detections, {.type = CocoIouType::masks}); }),
              HasSubstr("None of the 1 annotations of the ground truth has a mask"));
}

TEST(CocoEvaluation, AMaskThatCannotBeMadeNamesItsAnnotation) {
  const auto truth = truth_of({{.id = 41, .box = {.x = 0, .y = 0, .width = 3e6, .height = 10}}});
  const auto detections = link_coco_results(std::vector{result(0.5)}, truth, CocoIouType::boxes);
  EXPECT_THAT(message_of<EnvironmentError>([&] { evaluate_coco(truth, detections, {.type = CocoIouType::masks}); }),
              AllOf(HasSubstr("Annotation 41 of image 1"), HasSubstr("coordinate 3e+06")));
}

TEST(CocoEvaluation, TheSummaryHasTwelveLines) {
  CocoStats stats{};
  stats[0] = 0.12345;
  stats[11] = -1;
  const auto summary = coco_summary(stats);
  EXPECT_THAT(summary,
              AllOf(HasSubstr(" Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 0.123\n"),
                    HasSubstr(" Average Recall     (AR) @[ IoU=0.50:0.95 | area= large | maxDets=100 ] = -1.000\n")));
  EXPECT_EQ(std::count(summary.begin(), summary.end(), '\n'), 12);
}

}  // namespace
}  // namespace libtrain::data
