#include <libtrain/data/formats/coco_results.hpp>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <tests/data/memory_file.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

CocoAnnotations truth() {
  return read_coco(*memory_file(R"({"images": [{"id": 9, "width": 20, "height": 10, "file_name": ""},
                                               {"id": 4, "width": 7, "height": 6, "file_name": ""}],
                                    "categories": [{"id": 3, "name": "a"}, {"id": 1, "name": "b"}]})"));
}

// 44 is the character that JSON escapes.
std::vector<CocoResult> some_results() {
  return {{.image_id = 9,
           .category_id = 3,
           .score = 0.1f,
           .box = {.x = 1.0 / 3, .y = 2, .width = 3.5, .height = 1e-9},
           .mask = RunLength{.height = 10, .width = 20, .counts = {44, 3, 153}}},
          {.image_id = 4, .category_id = 1, .score = 1, .box = {.x = 0, .y = 1, .width = 2, .height = 3}},
          {.image_id = 9,
           .category_id = 1,
           .score = 0,
           .box = {.x = -1, .y = -2.5, .width = 1e20, .height = 0},
           .mask = RunLength{.height = 10, .width = 20, .counts = {0, 200}}}};
}

std::vector<CocoResult> with_masks() {
  auto results = some_results();
  results[1].mask = RunLength{.height = 6, .width = 7, .counts = {1, 2, 3, 4, 32}};
  return results;
}

std::string read_text(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{}};
}

CocoObjects read_back(const std::string& path, const CocoAnnotations& truth) {
  return read_coco_results(*memory_file(read_text(path)), truth);
}

TEST(CocoResults, BytesBecomeTheSameResults) {
  const auto results = some_results();
  EXPECT_EQ(unpack_coco_results(pack_coco_results(results)), results);
  EXPECT_TRUE(unpack_coco_results("").empty());
  // Those of ranks are joined.
  const auto joined = unpack_coco_results(pack_coco_results(results) + pack_coco_results(std::vector{results[1]}));
  ASSERT_EQ(joined.size(), 4u);
  EXPECT_EQ(joined[3], results[1]);
}

TEST(CocoResults, TruncatedAndDamagedBytesAreRefused) {
  const auto bytes = pack_coco_results(std::vector{some_results()[0]});
  for (std::size_t length = 1; length < bytes.size(); ++length) {
    EXPECT_THROW(unpack_coco_results(bytes.substr(0, length)), CommunicationError) << length;
  }
  auto damaged = bytes;
  damaged.back() = '~';
  EXPECT_THAT(message_of<CommunicationError>([&] { unpack_coco_results(damaged); }), HasSubstr("same build"));
}

void expect_equal(const CocoObjects& found, const CocoObjects& expected) {
  EXPECT_EQ(found.first_of_image, expected.first_of_image);
  ASSERT_EQ(found.annotations.size(), expected.annotations.size());
  for (std::size_t number = 0; number < found.annotations.size(); ++number) {
    const auto& a = found.annotations[number];
    const auto& b = expected.annotations[number];
    EXPECT_EQ(a.id, b.id);
    EXPECT_EQ(a.category, b.category);
    EXPECT_EQ(a.image, b.image);
    EXPECT_EQ(a.score, b.score);
    EXPECT_EQ(a.area, b.area);
    EXPECT_EQ(a.kind, b.kind);
    EXPECT_EQ(found.mask(a, 10, 20), expected.mask(b, 10, 20));
  }
}

TEST(CocoResults, LinkedResultsAreThoseOfTheirFile) {
  const libtrain::test::TemporaryFolder folder;
  const auto annotations = truth();
  const auto results = with_masks();
  const std::string path = folder / "results.json";

  write_coco_results(path, results, CocoResultKeys::bbox);
  auto boxes = read_back(path, annotations);
  expect_equal(boxes, link_coco_results(results, annotations, CocoIouType::boxes));
  EXPECT_EQ(boxes.annotations[1].box, results[0].box);

  write_coco_results(path, results, CocoResultKeys::segmentation);
  const auto masks = read_back(path, annotations);
  expect_equal(masks, link_coco_results(results, annotations, CocoIouType::masks));
  EXPECT_EQ(masks.annotations[1].area, 3);

  write_coco_results(path, results);
  const auto both = read_back(path, annotations);
  EXPECT_EQ(both.annotations[2].area, 0);  // of the box
  EXPECT_EQ(both.annotations[2].kind, CocoShape::run_length);
}

TEST(CocoResults, AFileHasTheDigitsThatTellNumbersApart) {
  const libtrain::test::TemporaryFolder folder;
  const std::string path = folder / "results.json";
  write_coco_results(path, {});
  EXPECT_EQ(read_text(path), "[]\n");
  write_coco_results(path, std::vector{some_results()[0], some_results()[1]});
  EXPECT_EQ(read_text(path), R"([{"image_id":9,"category_id":3,"bbox":[0.3333333333333333,2,3.5,1e-09],)"
                             R"("score":0.10000000149011612,"segmentation":{"size":[10,20],"counts":"\\13i4"}},)"
                             "\n"
                             R"({"image_id":4,"category_id":1,"bbox":[0,1,2,3],"score":1}])"
                             "\n");
}

TEST(CocoResults, AFileIsCompleteOrAbsent) {
  const libtrain::test::TemporaryFolder folder;
  const std::string path = folder / "results.json";
  auto results = some_results();
  results[2].score = std::numeric_limits<double>::infinity();
  EXPECT_THAT(message_of<UsageError>([&] { write_coco_results(path, results); }),
              AllOf(HasSubstr("Result 3 (image 9, category 1)"), HasSubstr("score inf")));
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_THAT(message_of<EnvironmentError>([&] { write_coco_results("/dev/full", some_results()); }),
              HasSubstr("/dev/full"));
  EXPECT_THAT(message_of<EnvironmentError>([&] { write_coco_results(folder / "missing/x", some_results()); }),
              HasSubstr("missing"));
}

TEST(CocoResults, UnknownCategoriesAreLeftOut) {
  auto results = some_results();
  results[0].category_id = 2;
  const auto linked = link_coco_results(results, truth(), CocoIouType::boxes);
  ASSERT_EQ(linked.annotations.size(), 2u);
  EXPECT_EQ(linked.annotations[1].id, 3);
}

TEST(CocoResults, WhatDoesNotFitTheGroundTruthIsRefused) {
  const auto message = [](const CocoResult& result) {
    return message_of<UsageError>([&] { link_coco_results(std::vector{result}, truth(), CocoIouType::masks); });
  };
  const auto good = with_masks()[0];
  auto bad = good;
  bad.image_id = 5;
  EXPECT_THAT(message(bad), HasSubstr("Result 1 (image 5, category 3) is not of an image of the annotation file"));
  bad = good;
  bad.score = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(message(bad), HasSubstr("finite"));
  bad = good;
  bad.mask.reset();
  EXPECT_THAT(message(bad), HasSubstr("has no mask"));
  bad = good;
  bad.image_id = 4;
  EXPECT_THAT(message(bad), AllOf(HasSubstr("10 x 20"), HasSubstr("6 x 7")));
  bad = good;
  bad.mask->counts.push_back(1);
  EXPECT_THAT(message(bad), HasSubstr("add up to 201 pixels; expected 200"));
  EXPECT_THAT(message_of<UsageError>([&] { pack_coco_results(std::vector{bad}); }), HasSubstr("add up to 201"));
  bad = good;
  bad.mask.reset();
  EXPECT_THAT(
      message_of<UsageError>([&] { write_coco_results("/dev/null", std::vector{bad}, CocoResultKeys::segmentation); }),
      HasSubstr("has no mask"));
}

}  // namespace
}  // namespace libtrain::data
