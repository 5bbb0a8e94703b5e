// The kinds of malformed annotations: each is an error with file, offset, annotation and reason, or it is left out and
// counted, and the annotations around it are read.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/coco.hpp>
#include <tests/data/memory_file.hpp>
#include <tests/support/log_sinks.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::CapturedLog;
using libtrain::test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Kind {
  std::string name = {};
  std::string annotation = {};  // ^ is where the fault is
  std::string reason = {};
  std::string record = "annotation 41";
};

// In most the id comes last, as in COCO's own files.
const std::vector<Kind> kKinds{
    {"not an object", "^7", "an object for 'annotations', found '7", ""},
    {"no id", R"(^{"image_id": 7, "category_id": 1, "bbox": [0, 0, 1, 1]})", "an object with the key 'id'", ""},
    {"an id that is no integer", R"({"image_id": 7, "category_id": 1, "bbox": [0, 0, 1, 1], "id": ^"x41"})",
     R"(an integer for 'id', found '"x41")", ""},
    {"no image", R"(^{"category_id": 1, "bbox": [0, 0, 1, 1], "id": 41})", "an object with the key 'image_id'"},
    {"an image that is no integer", R"({"image_id": ^7.5, "category_id": 1, "bbox": [0, 0, 1, 1], "id": 41})",
     "an integer for 'image_id', found '7.5"},
    {"no category", R"(^{"image_id": 7, "bbox": [0, 0, 1, 1], "id": 41})", "an object with the key 'category_id'"},
    {"a category that is no integer", R"({"image_id": 7, "category_id": ^"cat", "bbox": [0, 0, 1, 1], "id": 41})",
     "an integer for 'category_id'"},
    {"an unknown category", R"(^{"image_id": 7, "category_id": 99, "bbox": [0, 0, 1, 1], "id": 41})",
     "an object of a known category, not of 99"},
    {"no box", R"(^{"image_id": 7, "category_id": 1, "id": 41})", "an object with the key 'bbox'"},
    {"a box of three numbers", R"({"image_id": 7, "category_id": 1, "bbox": ^[0, 0, 1], "id": 41})",
     "four numbers for 'bbox'"},
    {"a box with a text", R"({"image_id": 7, "category_id": 1, "bbox": [0, 0, ^"1", 1], "id": 41})",
     "a number for 'bbox'"},
    {"a box that is an object", R"({"image_id": 7, "category_id": 1, "bbox": ^{"x": [1, {}]}, "id": 41})",
     "an array for 'bbox'"},
    {"an area that is no double",
     R"({"image_id": 7, "category_id": 1, "bbox": [0, 0, 1, 1], "area": ^1e999, "id": 41})",
     "a number for 'area', found '1e999"},
    {"a crowd of 2", R"({"image_id": 7, "category_id": 1, "bbox": [0, 0, 1, 1], "iscrowd": ^2, "id": 41})",
     "0 or 1 for 'iscrowd', found '2"},
    {"a text as its shape",
     R"({"segmentation": ^"x", "image_id": 7, "category_id": 1, "bbox": [0, 0, 1, 1], "id": 41})",
     "polygons or a run-length mask for 'segmentation'"},
    {"numbers as polygons",
     R"({"segmentation": [^1, 2, 3, 4, 5, 6], "image_id": 7, "category_id": 1, "bbox": [0, 0, 1, 1], "id": 41})",
     "an array for 'a polygon'"},
    {"NaN as a coordinate",
     R"({"segmentation": [[1, 2, 3, 4, 5, 6], [1, 2, ^NaN, 4, 5, 6]], "image_id": 7, "category_id": 1,
         "bbox": [0, 0, 1, 1], "id": 41})",
     "a number for 'a polygon', found 'NaN"},
    {"a mask without its size",
     R"({"segmentation": ^{"counts": [1, 3]}, "image_id": 7, "category_id": 1, "bbox": [0, 0, 1, 1], "id": 41})",
     "an object with the keys 'size' and 'counts'"},
    {"a mask of more pixels than can be",
     R"({"segmentation": {"size": ^[99999, 99999], "counts": [1]}, "image_id": 7, "category_id": 1,
         "bbox": [0, 0, 1, 1], "id": 41})",
     "a height and a width of up to 2147483647 pixels"},
    {"runs that are too few",
     R"({"segmentation": {"size": [2, 2], "counts": ^[1, 2]}, "image_id": 7, "category_id": 1, "bbox": [0, 0, 1, 1],
         "id": 41})",
     "counts that add up to 4, not to 3"},
    {"a run that is too long",
     R"({"segmentation": {"size": [2, 2], "counts": ^[1, 5]}, "image_id": 7, "category_id": 1, "bbox": [0, 0, 1, 1],
         "id": 41})",
     "counts that add up to 4, not the count 5"},
    {"a string of runs with an invalid character",
     R"({"segmentation": ^{"size": [2, 2], "counts": "1~"}, "image_id": 7, "category_id": 1, "bbox": [0, 0, 1, 1],
         "id": 41})",
     "a run-length mask of 2 x 2 (the count at character 1 is truncated or contains an invalid character)"},
    {"a key with an invalid escape", R"({"image_id": 7, "^\x": 1, "category_id": 1, "bbox": [0, 0, 1, 1], "id": 41})",
     "a key whose escapes are valid"},
};

const std::string kBefore =
    R"({"id": 40, "image_id": 7, "category_id": 1, "bbox": [0, 0, 1, 1], "area": 1,
        "segmentation": [[0, 0, 1, 0, 1, 1]]})";
const std::string kAfter =
    R"({"id": 42, "image_id": 7, "category_id": 1, "bbox": [0, 0, 1, 1], "area": 1,
        "segmentation": {"size": [10, 12], "counts": "02f3"}})";

// A file with an annotation between two others, and the place of its fault.
struct Malformed {
  explicit Malformed(const std::string& annotation)
      : json(R"({"images": [{"id": 7, "width": 12, "height": 10, "file_name": ""}], "annotations": [)" + kBefore +
             ", " + annotation + ", " + kAfter + R"(], "categories": [{"id": 1, "name": "a"}]})"),
        offset(json.find('^')) {
    json.erase(offset, 1);
  }

  CocoAnnotations read(CocoMalformed malformed, CocoUse use = CocoUse::training) const {
    return read_coco(*memory_file(json, "instances.json"), {.use = use, .malformed = malformed});
  }

  std::string json;
  std::size_t offset;
};

TEST(MalformedCoco, IsRefusedWithFileOffsetAnnotationAndReason) {
  for (const auto& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    const Malformed file{kind.annotation};
    const auto message = message_of<EnvironmentError>([&] { file.read(CocoMalformed::refuse); });
    const std::string record = kind.record.empty() ? "" : ", " + kind.record;
    EXPECT_THAT(message, HasSubstr(text("JSON file 'instances.json', byte offset ", file.offset, record, ": expected ",
                                        kind.reason)));
  }
}

TEST(MalformedCoco, IsLeftOutAndCountedIfThatIsAskedFor) {
  for (const auto& kind : kKinds) {
    for (const auto use : {CocoUse::training, CocoUse::evaluation}) {
      SCOPED_TRACE(kind.name);
      const Malformed file{kind.annotation};
      const CapturedLog log{LogLevel::warning};
      const auto found = file.read(CocoMalformed::leave_out, use);
      EXPECT_EQ(found.findings, CocoFindings{.malformed = 1});
      ASSERT_EQ(found.objects.annotations.size(), 2u);
      EXPECT_EQ(found.objects.annotations[0].id, 40);
      EXPECT_EQ(found.objects.annotations[1].id, 42);
      EXPECT_EQ(found.objects.shapes.coordinates.size(), 6u);
      EXPECT_EQ(found.objects.mask(found.objects.annotations[1], 10, 12).counts,
                (std::vector<std::uint32_t>{0, 2, 118}));
      ASSERT_EQ(log.lines().size(), 2u);
      EXPECT_THAT(log.lines()[0], AllOf(HasSubstr(text("byte offset ", file.offset)), HasSubstr(kind.reason)));
      EXPECT_THAT(log.lines()[1], HasSubstr("1 annotations are malformed and left out"));
    }
  }
}

TEST(MalformedCoco, AllAreCountedAndTheFirstIsTold) {
  std::string all;
  for (const auto& kind : kKinds) {
    std::string annotation = kind.annotation;
    annotation.erase(annotation.find('^'), 1);
    all += annotation + ", ";
  }
  const Malformed file{all + "^7"};
  const CapturedLog log{LogLevel::warning};
  const auto found = file.read(CocoMalformed::leave_out);
  EXPECT_EQ(found.findings.malformed, kKinds.size() + 1);
  EXPECT_EQ(found.objects.annotations.size(), 2u);
  ASSERT_EQ(log.lines().size(), 2u);
  EXPECT_THAT(log.lines()[0], HasSubstr(kKinds[0].reason));
}

// What follows such a fault could be anything.
TEST(MalformedCoco, JsonThatIsNotWellFormedIsRefusedInAnyCase) {
  const std::string begin = R"({"image_id": 7, "category_id": 1, )";
  for (const std::string& annotation :
       {begin + R"("bbox": [0, 0, 1, 1] ^"id": 41})", begin + R"("bbox": [0, 0, 1 ^1], "id": 41})",
        begin + R"("bbox": [0, 0, 1, 1], "note": "a^)" + "\n" + R"(b", "id": 41})",
        begin + R"("bbox": [0, 0, 1, 1], "note": "^)" + "\xff" + R"(", "id": 41})"}) {
    const Malformed file{annotation};
    for (const auto malformed : {CocoMalformed::refuse, CocoMalformed::leave_out}) {
      EXPECT_THAT(message_of<EnvironmentError>([&] { file.read(malformed); }),
                  HasSubstr(text("'instances.json', byte offset ", file.offset)))
          << annotation;
    }
  }
}

TEST(MalformedCoco, ResultsNameTheirPosition) {
  const CapturedLog log{LogLevel::warning};
  const auto truth = Malformed{"^7"}.read(CocoMalformed::leave_out);
  const std::string good = R"({"image_id": 7, "category_id": 1, "score": 1, "bbox": [0, 0, 1, 1]})";
  const std::string json = "[" + good + R"(, {"image_id": 7, "category_id": 1, "score": "x"}, )" + good + "]";
  const auto read = [&](CocoMalformed malformed) {
    return read_coco_results(*memory_file(json, "results.json"), truth, {.malformed = malformed});
  };
  EXPECT_THAT(message_of<EnvironmentError>([&] { read(CocoMalformed::refuse); }),
              HasSubstr(text("'results.json', byte offset ", json.find(R"("x")"), ", result 2: expected a number")));
  const auto found = read(CocoMalformed::leave_out);
  ASSERT_EQ(found.annotations.size(), 2u);
  EXPECT_EQ(found.annotations[1].id, 3);  // its position in the file
}

}  // namespace
}  // namespace libtrain::data
