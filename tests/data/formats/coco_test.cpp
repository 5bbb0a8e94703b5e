#include <libtrain/data/formats/coco.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <tests/data/memory_file.hpp>
#include <tests/support/log_sinks.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// gmock wants a container that owns.
template <typename Element>
std::vector<Element> list(std::span<const Element> elements) {
  return {elements.begin(), elements.end()};
}

CocoAnnotations read(const std::string& json, const CocoOptions& options = {}) {
  return read_coco(*memory_file(json, "instances.json"), options);
}

std::string coco_error(const std::string& json, const CocoOptions& options = {}) {
  return message_of<EnvironmentError>([&] { read(json, options); });
}

// A file with two images, three categories and these annotations.
std::string with_annotations(const std::string& annotations) {
  return R"({"info": {"year": 2017, "notes": ["}", {"a": "]\""}]},
"images": [{"id": 30, "width": 8, "height": 6, "file_name": "b.jpg", "license": 1},
           {"file_name": "a/\u00e9.jpg", "id": 7, "height": 10, "width": 12}],
"categories": [{"id": 90, "name": "brush"}, {"id": 1, "name": "person", "supercategory": "living"},
               {"id": 13, "name": "sign"}],
"annotations": [)" +
         annotations + "]}";
}

const std::string kPolygon =
    R"({"id": 5, "image_id": 7, "category_id": 13, "bbox": [1.5, 2, 4.25, 3], "area": 9.5, "iscrowd": 0,
        "segmentation": [[1.5, 2, 5.75, 2, 5.75, 5.0], [1, 1, 2, 1, 2, 2, 1, 2]]})";
const std::string kCrowd =
    R"({"segmentation": {"counts": [6, 1, 41], "size": [6, 8]}, "iscrowd": 1, "bbox": [1, 0, 1, 1], "area": 1,
        "category_id": 1, "image_id": 30, "id": 900100000030})";
const std::string kString =
    R"({"id": 6, "image_id": 7, "category_id": 90, "iscrowd": 0, "area": 2, "bbox": [0, 0, 1, 2],
        "segmentation": {"size": [10, 12], "counts": "02f3"}})";

TEST(Coco, ReadsEverySection) {
  const auto found = read(with_annotations(kPolygon + "," + kCrowd + "," + kString));
  ASSERT_EQ(found.images.size(), 2u);
  EXPECT_EQ(found.images[0].id, 7);
  EXPECT_EQ(found.images[0].width, 12);
  EXPECT_EQ(found.images[0].height, 10);
  EXPECT_EQ(found.file_name(found.images[0]), "a/\xc3\xa9.jpg");
  EXPECT_EQ(found.file_name(found.images[1]), "b.jpg");
  ASSERT_EQ(found.categories.size(), 3u);
  EXPECT_EQ(found.categories[0].supercategory, "living");
  EXPECT_EQ(found.categories[2].name, "brush");

  const auto first = found.objects.of_image(0);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].id, 5);
  EXPECT_EQ(first[0].category, 1u);
  EXPECT_EQ(first[0].box, (BoundingBox{.x = 1.5, .y = 2, .width = 4.25, .height = 3}));
  EXPECT_EQ(first[0].area, 9.5);
  EXPECT_FALSE(first[0].crowd);
  ASSERT_EQ(first[0].kind, CocoShape::polygons);
  ASSERT_EQ(first[0].polygons, 2u);
  EXPECT_THAT(list(found.objects.shapes.polygon(first[0].shape)), ElementsAre(1.5, 2, 5.75, 2, 5.75, 5));
  EXPECT_THAT(list(found.objects.shapes.polygon(first[0].shape + 1)), ElementsAre(1, 1, 2, 1, 2, 2, 1, 2));
  EXPECT_EQ(first[1].category, 2u);

  const auto second = found.objects.of_image(1);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].id, 900100000030);
  EXPECT_TRUE(second[0].crowd);
  ASSERT_EQ(second[0].kind, CocoShape::run_length);
  EXPECT_THAT(list(found.objects.shapes.run_length(second[0].shape).counts), ElementsAre(6, 1, 41));
  EXPECT_EQ(found.findings, CocoFindings{});
}

TEST(Coco, CompressedRunsBecomeCounts) {
  const auto found = read(with_annotations(kString));
  const auto& annotation = found.objects.of_image(0)[0];
  const auto runs = found.objects.shapes.run_length(annotation.shape);
  EXPECT_EQ(runs.height, 10u);
  EXPECT_EQ(runs.width, 12u);
  EXPECT_THAT(list(runs.counts), ElementsAre(0, 2, 118));  // "02f3": 0, 2, and 22 + 32 * 3
}

TEST(Coco, MasksAreTheUnionOfThePolygons) {
  const std::string two_squares =
      R"({"id": 1, "image_id": 30, "category_id": 1, "bbox": [0, 0, 4, 3], "area": 7, "iscrowd": 0,
          "segmentation": [[0, 0, 2, 0, 2, 2, 0, 2], [1, 1, 3, 1, 3, 3, 1, 3]]})";
  const auto found = read(with_annotations(two_squares + "," + kCrowd));
  const auto annotations = found.objects.of_image(1);
  // Columns of 6 pixels: 11...., 111..., .11...
  EXPECT_THAT(found.objects.mask(annotations[0], 6, 8).counts, ElementsAre(0, 2, 4, 3, 4, 2, 33));
  EXPECT_THAT(found.objects.mask(annotations[1], 6, 8).counts, ElementsAre(6, 1, 41));
  CocoAnnotation none;
  EXPECT_THAT(found.objects.mask(none, 6, 8).counts, ElementsAre(48));
}

// Those of up to seven characters are read without a look at each.
TEST(Coco, NumbersOfEveryLengthAreThoseOfStrtod) {
  const std::string digits = "9876543210";
  for (const std::string whole : {"0", "7", "98", "987", "9876", "98765", "987654", "9876543", "98765432"}) {
    for (std::size_t decimals = 0; decimals <= digits.size(); ++decimals) {
      const std::string fraction = decimals == 0 ? "" : "." + digits.substr(digits.size() - decimals);
      for (const std::string& number : {whole + fraction, "-" + whole + fraction, whole + fraction + "e-2"}) {
        const auto found = read(with_annotations(R"({"id": 1, "image_id": 7, "category_id": 1, "area": 1,
            "bbox": [0, 0, 1, 1], "segmentation": [[)" +
                                                 number + ",1,2,3,4 ," + number + "]]}"));
        const double expected = std::strtod(number.c_str(), nullptr);
        EXPECT_THAT(found.objects.shapes.coordinates, ElementsAre(expected, 1, 2, 3, 4, expected)) << number;
      }
    }
  }
}

TEST(Coco, SectionsAndKeysComeInAnyOrder) {
  const auto found = read(
      R"({"annotations": [{"bbox": [0, 0, 1, 1], "\u0069d": 4, "category_id": 2, "extra": {"id": 9, "x": [{}]},
                           "image_id": 1}],
          "categories": [{"name": "x", "id": 2}], "more": 1e3,
          "images": [{"file_name": "", "width": 1, "id": 1, "height": 1}]})");
  ASSERT_EQ(found.objects.annotations.size(), 1u);
  EXPECT_EQ(found.objects.annotations[0].id, 4);
  EXPECT_EQ(found.objects.annotations[0].kind, CocoShape::none);
  EXPECT_EQ(found.objects.annotations[0].area, 1);  // of the box, for there is none in the file
}

TEST(Coco, WhatItDoesNotKnowIsSkipped) {
  const std::string nested =
      R"({"id": 8, "image_id": 7, "category_id": 1, "bbox": [0, 0, 1, 1], "area": 1, "caption": "}, {\"id\": 3}",
          "segments_info": [{"id": 1}, {"id": 2}], "segmentation": null})";
  const auto found = read(with_annotations(kPolygon + " , " + nested + "," + kCrowd));
  EXPECT_EQ(found.objects.annotations.size(), 3u);
  const std::string deep = std::string(5000, '[') + std::string(5000, ']');
  EXPECT_TRUE(read(R"({"info": )" + deep + R"(, "images": []})").images.empty());
}

TEST(Coco, TrainingLeavesOutWhatHasNoArea) {
  const std::string flat =
      R"({"id": 1, "image_id": 7, "category_id": 1, "bbox": [0, 0, 5, 0], "area": 3,
          "segmentation": [[1, 1, 2, 1, 2, 2]]})";
  const std::string short_polygons =
      R"({"id": 2, "image_id": 7, "category_id": 1, "bbox": [0, 0, 5, 1], "area": 3,
          "segmentation": [[1, 1, 2, 1], [1, 1, 2, 1, 2, 2, 3]]})";
  const auto json = with_annotations(flat + "," + short_polygons + "," + kPolygon);
  const auto training = read(json);
  EXPECT_EQ(training.findings, (CocoFindings{.degenerate_boxes = 1, .without_polygon = 1, .polygons = 2}));
  ASSERT_EQ(training.objects.annotations.size(), 1u);
  EXPECT_EQ(training.objects.annotations[0].id, 5);
  EXPECT_EQ(training.objects.shapes.coordinates.size(), 14u);

  const auto evaluation = read(json, {.use = CocoUse::evaluation});
  ASSERT_EQ(evaluation.objects.annotations.size(), 3u);
  EXPECT_EQ(evaluation.objects.annotations[0].box.height, 0);
  EXPECT_EQ(evaluation.objects.annotations[1].kind, CocoShape::none);
  EXPECT_EQ(evaluation.findings, CocoFindings{.polygons = 2});

  const auto narrow = read(with_annotations(R"({"id": 1, "image_id": 7, "category_id": 1, "bbox": [0, 0, 0, 5]})"));
  EXPECT_EQ(narrow.findings, CocoFindings{.degenerate_boxes = 1});
}

TEST(Coco, CountsOddIdsAndUnknownImages) {
  const std::string box = R"("category_id": 1, "bbox": [0, 0, 1, 1], "area": 1})";
  const auto found =
      read(with_annotations(R"({"id": 0, "image_id": 7, )" + box + R"(, {"id": 4, "image_id": 7, )" + box +
                            R"(, {"id": 4, "image_id": 30, )" + box + R"(, {"id": 5, "image_id": 31, )" + box));
  EXPECT_EQ(found.findings, (CocoFindings{.unknown_images = 1, .duplicate_ids = 1, .ids_not_positive = 1}));
  EXPECT_EQ(found.objects.annotations.size(), 3u);
}

TEST(Coco, ImagesWithCrowdsAloneAreNotForTraining) {
  EXPECT_THAT(trainable_image_ids(read(with_annotations(kCrowd))), ElementsAre());
  const auto found = read(with_annotations(kCrowd + "," + kPolygon));
  EXPECT_THAT(trainable_image_ids(found), ElementsAre(7));
  EXPECT_EQ(found.images.size(), 2u);
}

TEST(Coco, FindsPositionsById) {
  const auto found = read(with_annotations(""));
  EXPECT_EQ(found.find_image(30), 1u);
  EXPECT_FALSE(found.find_image(8).has_value());
  EXPECT_EQ(found.find_category(13), 1u);
  EXPECT_TRUE(found.objects.of_image(0).empty());
}

TEST(Coco, AFileOfImagesAloneIsReadable) {
  const auto found = read(R"({"images": [{"id": 1, "width": 2, "height": 3, "file_name": "x"}]})");
  EXPECT_EQ(found.images.size(), 1u);
  EXPECT_TRUE(found.objects.annotations.empty());
  EXPECT_TRUE(read(" \n{\"images\": [ ]}\n").images.empty());
  EXPECT_TRUE(read("\xef\xbb\xbf {\"images\": []}").images.empty());
}

TEST(Coco, ResultsAreReadAgainstTheGroundTruth) {
  const auto truth = read(with_annotations(kPolygon), {.use = CocoUse::evaluation});
  const auto results =
      read_coco_results(*memory_file(R"([{"image_id": 30, "category_id": 90, "bbox": [1, 2, 3, 0.5], "score": 0.25},
                          {"image_id": 7, "category_id": 1, "score": 0.75,
                           "segmentation": {"size": [10, 12], "counts": "02f3"}}])"),
                        truth);
  ASSERT_EQ(results.annotations.size(), 2u);
  const auto& mask = results.of_image(0)[0];
  EXPECT_EQ(mask.id, 2);
  EXPECT_EQ(mask.score, 0.75);
  EXPECT_EQ(mask.area, 2);
  EXPECT_EQ(mask.box, (BoundingBox{.x = 0, .y = 0, .width = 1, .height = 2}));
  const auto& box = results.of_image(1)[0];
  EXPECT_EQ(box.id, 1);
  EXPECT_EQ(box.category, 2u);
  EXPECT_EQ(box.area, 1.5);
}

TEST(Coco, TheFirstResultDecidesWhatTheAreasAre) {
  const auto truth = read(with_annotations(""));
  const std::string mask = R"({"image_id": 7, "category_id": 1, "score": 1, "segmentation": {"size": [10, 12],
                               "counts": "02f3"})";
  const std::string with_both = mask + R"(, "bbox": [1, 2, 3, 4]})";
  const auto areas = [&](const std::string& json) {
    std::vector<double> found;
    for (const auto& each : read_coco_results(*memory_file(json), truth).annotations) found.push_back(each.area);
    return found;
  };
  EXPECT_THAT(areas("[" + with_both + "]"), ElementsAre(12));
  EXPECT_THAT(areas("[" + mask + "}," + with_both + "]"), ElementsAre(2, 2));
  EXPECT_THAT(areas("[" + mask + R"(, "bbox": []}])"), ElementsAre(2));
  // pycocotools refuses these.
  const std::string box = R"({"image_id": 7, "category_id": 1, "score": 1, "bbox": [1, 2, 3, 5]})";
  EXPECT_THAT(areas("[" + with_both + "," + mask + "}," + box + "]"), ElementsAre(12, 2, 15));
  EXPECT_THAT(areas("[" + mask + "}," + box + "," + with_both + "]"), ElementsAre(2, 15, 2));
}

TEST(Coco, ResultsOfOtherImagesAndCategoriesAreLeftOut) {
  const auto truth = read(with_annotations(""));
  const auto results = [&](const std::string& json) { return read_coco_results(*memory_file(json, "r.json"), truth); };
  const std::string other_image = R"({"image_id": 8, "category_id": 90, "bbox": [1, 2, 3, 4], "score": 1})";
  const std::string other_category = R"({"image_id": 7, "category_id": 91, "bbox": [1, 2, 3, 4], "score": 1})";
  const std::string known = R"({"image_id": 7, "category_id": 90, "bbox": [1, 2, 3, 4], "score": 1})";
  const libtrain::test::CapturedLog log{LogLevel::warning};
  const auto found = results("[" + other_image + "," + other_category + "," + known + "]");
  ASSERT_EQ(found.annotations.size(), 1u);
  EXPECT_EQ(found.annotations[0].id, 3);
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("1 results of images"), HasSubstr("1 results of categories")));
  EXPECT_TRUE(results("[" + other_category + "]").annotations.empty());
  EXPECT_TRUE(results("[]").annotations.empty());
  EXPECT_THAT(message_of<EnvironmentError>([&] { results("[" + other_image + "," + other_image + "]"); }),
              AllOf(HasSubstr("'r.json'"), HasSubstr("none of its 2 results is of an image")));
}

TEST(Coco, ResultsWithoutTheirKeysAreRefused) {
  const auto truth = read(with_annotations(""));
  const auto message = [&](const std::string& json) {
    return message_of<EnvironmentError>([&] { read_coco_results(*memory_file(json, "r.json"), truth); });
  };
  EXPECT_THAT(message(R"([{"image_id": 7, "category_id": 90, "bbox": [1, 2, 3, 4]}])"),
              AllOf(HasSubstr("'r.json'"), HasSubstr("byte offset 1"), HasSubstr("'score'")));
  EXPECT_THAT(message(R"([{"image_id": 7, "category_id": 90, "score": 1}])"),
              HasSubstr("'bbox', or a run-length mask"));
  EXPECT_THAT(message(R"({"images": []})"), HasSubstr("results file"));
}

// pycocotools keeps annotations in a dictionary: those of one id are the last of them.
TEST(Coco, InAnEvaluationTheLastAnnotationOfAnIdReplacesTheOthers) {
  const std::string box = R"("category_id": 1, "bbox": [0, 0, 1, 1], "area": )";
  const std::string json = with_annotations(R"({"id": 4, "image_id": 7, )" + box + R"(1}, {"id": 4, "image_id": 30, )" +
                                            box + R"(2}, {"id": 5, "image_id": 7, )" + box + "3}");
  const libtrain::test::SilentLog silence;
  const auto evaluation = read(json, {.use = CocoUse::evaluation});
  EXPECT_EQ(evaluation.findings, CocoFindings{.duplicate_ids = 1});
  ASSERT_EQ(evaluation.objects.of_image(1).size(), 2u);
  for (const auto& each : evaluation.objects.of_image(1)) EXPECT_EQ(each.area, 2);
  EXPECT_EQ(read(json).objects.of_image(0).size(), 2u);
}

TEST(Coco, AnErrorNamesFileOffsetAndWhatWasThere) {
  EXPECT_THAT(coco_error(R"({"images": [{"id": "x1", "width": 1}]})"),
              AllOf(HasSubstr("'instances.json'"), HasSubstr("byte offset 19"), HasSubstr("an integer for 'id'"),
                    HasSubstr("x1")));
  EXPECT_THAT(coco_error(R"({"images": [{"id": 1, "height": 1, "file_name": ""}]})"),
              AllOf(HasSubstr("byte offset 12"), HasSubstr("'width'")));
  EXPECT_THAT(coco_error(R"({"images": [{"id": 1, "height": 0}]})"), HasSubstr("from 1 to"));
  EXPECT_THAT(coco_error("[]"), HasSubstr("read_coco_results"));
  EXPECT_THAT(coco_error(""), AllOf(HasSubstr("byte offset 0"), HasSubstr("the end of the file")));
  EXPECT_THAT(coco_error(R"({"categories": []})"), HasSubstr("'images'"));
  EXPECT_THAT(coco_error(R"({"images": [], "images": []})"), HasSubstr("once"));
  EXPECT_THAT(coco_error(R"({"images": []} {})"), AllOf(HasSubstr("byte offset 15"), HasSubstr("nothing after")));
  EXPECT_THAT(coco_error(R"({"images": []} x)"),
              AllOf(HasSubstr("byte offset 15"), HasSubstr("'}' at the end of the file")));
  EXPECT_THAT(coco_error(R"({"images": [1, 2]})"), AllOf(HasSubstr("byte offset 12"), HasSubstr("an object")));
  EXPECT_THAT(coco_error(with_annotations(kPolygon + ",")), HasSubstr("an object"));
  EXPECT_THAT(coco_error(with_annotations(kPolygon + kPolygon)), HasSubstr("','"));
}

TEST(Coco, DamagedAnnotationsAreRefused) {
  const auto annotation = [](const std::string& members) {
    return coco_error(
        with_annotations(R"({"id": 1, "image_id": 7, "category_id": 1, "bbox": [0, 0, 1, 1], )" + members + "}"));
  };
  EXPECT_THAT(annotation(R"("segmentation": [[1, 2, NaN, 4, 5, 6]])"), AllOf(HasSubstr("a number"), HasSubstr("NaN")));
  EXPECT_THAT(annotation(R"("segmentation": [[1e999, 2, 3, 4, 5, 6]])"), HasSubstr("a number for"));
  EXPECT_THAT(annotation(R"("segmentation": [1, 2, 3, 4, 5, 6])"), HasSubstr("an array for 'a polygon'"));
  EXPECT_THAT(annotation(R"("segmentation": [[01, 2, 3, 4, 5, 6]])"), HasSubstr("a number for"));
  EXPECT_THAT(annotation(R"("segmentation": [[1, 2, 3, 4, 5, 6] [1]])"), HasSubstr("',' or ']'"));
  EXPECT_THAT(annotation(R"("segmentation": "x")"), HasSubstr("'segmentation'"));
  EXPECT_THAT(annotation(R"("segmentation": {"size": [2, 2], "counts": [1, 2]})"), HasSubstr("add up to 4"));
  EXPECT_THAT(annotation(R"("segmentation": {"size": [2, 2], "counts": [1, 5]})"), HasSubstr("add up to 4"));
  EXPECT_THAT(annotation(R"("segmentation": {"size": [2, 2], "counts": [1.5, 3]})"), HasSubstr("not the count 1.5"));
  EXPECT_THAT(annotation(R"("segmentation": {"size": [2, 2], "counts": "~~"})"), HasSubstr("2 x 2"));
  EXPECT_THAT(annotation(R"("segmentation": {"size": [99999, 99999], "counts": [1]})"), HasSubstr("pixels"));
  EXPECT_THAT(annotation(R"("segmentation": {"size": [2, 2]})"), HasSubstr("'counts'"));
  EXPECT_THAT(annotation(R"("iscrowd": 2)"), HasSubstr("0 or 1"));
  EXPECT_THAT(annotation(R"("area": 1e999)"), HasSubstr("'area'"));
  EXPECT_THAT(annotation(R"("bbox": [1, 2, 3])"), HasSubstr("four numbers"));
  EXPECT_THAT(annotation("\"note\": \"\xff\""), HasSubstr("UTF-8"));
  EXPECT_THAT(annotation("\"note\": \"a\nb\""), HasSubstr("control character"));
  EXPECT_THAT(annotation("\"note\": \"open}"), HasSubstr("closed"));
}

TEST(Coco, UnknownCategoriesAndRepeatedIdsAreRefused) {
  EXPECT_THAT(coco_error(with_annotations(R"({"id": 1, "image_id": 7, "category_id": 2, "bbox": [0, 0, 1, 1]})")),
              HasSubstr("category, not of 2"));
  const std::string image = R"({"id": 1, "width": 1, "height": 1, "file_name": ""})";
  EXPECT_THAT(coco_error(R"({"images": [)" + image + "," + image + "]}"),
              AllOf(HasSubstr("byte offset " + std::to_string(13 + image.size())), HasSubstr("not a second 1")));
  EXPECT_THAT(coco_error(R"({"images": [], "categories": [{"id": 3, "name": ""}, {"id": 3, "name": ""}]})"),
              HasSubstr("not a second 3"));
}

TEST(Coco, EveryTruncationOfAFileIsAnError) {
  const auto json = with_annotations(kPolygon + "," + kCrowd + "," + kString);
  for (std::size_t length = 0; length < json.size(); length += 3) {
    EXPECT_THROW(read(json.substr(0, length)), EnvironmentError) << length;
  }
}

}  // namespace
}  // namespace libtrain::data
