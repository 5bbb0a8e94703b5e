// Damaged files: each of 1,000 seeded mutations is read, or refused with an EnvironmentError. Run under
// AddressSanitizer, these tests say that nothing else happens.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/formats/coco.hpp>
#include <libtrain/data/formats/csv.hpp>
#include <libtrain/data/formats/json_lines.hpp>
#include <libtrain/data/formats/run_length.hpp>
#include <libtrain/data/sample_random.hpp>

#include <tests/data/memory_file.hpp>
#include <tests/support/log_sinks.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::SilentLog;

constexpr std::uint64_t kMutations = 1000;

const std::string kInstances =
    R"({"info": {"year": 2017, "notes": ["a\\b", null, true]},
 "images": [{"id": 3, "width": 20, "height": 10, "file_name": "a.jpg"},
            {"id": 4, "width": 8, "height": 8, "file_name": "d/\u00fc.jpg"}],
 "categories": [{"id": 1, "name": "person"}, {"id": 17, "name": "cat", "supercategory": "animal"}],
 "annotations": [
  {"id": 1, "image_id": 3, "category_id": 17, "bbox": [1.5, 2.25, 7.1, 3], "area": 12.5, "iscrowd": 0,
   "segmentation": [[1.5, 2.25, 8.6, 2.25, 8.6, 5.25], [1, 1, 2e0, 1, 2, -2, 1, 2]]},
  {"id": 2, "image_id": 4, "category_id": 1, "bbox": [0, 0, 2, 2], "area": 2, "iscrowd": 1,
   "segmentation": {"counts": [0, 2, 62], "size": [8, 8]}},
  {"id": 3, "image_id": 4, "category_id": 1, "bbox": [0, 0, 2, 2], "area": 2, "iscrowd": 0,
   "segmentation": {"size": [8, 8], "counts": "02n1"}}]})";

const std::string kResults =
    R"([{"image_id": 3, "category_id": 1, "bbox": [1, 2, 3, 4.5], "score": 0.5},
 {"image_id": 4, "category_id": 17, "score": 0.25, "segmentation": {"size": [8, 8], "counts": "02n1"}}])";

const std::string kLines = R"({"text": "caf\u00e9 \"x\"", "label": 3, "more": {"a": [1, {}, "]"]}}
{"label": -1.5e2, "text": "two"}

{"text": "", "label": 0, "flag": true}
)";

const std::string kCsv = "name,label,note\n\"a,b\",1,\"two\nlines\"\r\nplain,2,\"say \"\"no\"\"\"\n\nlast,3,\n";

// What goes wrong in files, and what an attacker would try.
std::string mutate(std::string bytes, SampleRandom& random) {
  static constexpr std::array<std::string_view, 16> inserted{
      "\"", "\\",    "{",    "}",   "[",    "]", ",", ":", "\n", "99999999999999999999",
      "-",  "1e999", "\xff", "\\u", "null", "}]"};
  const int changes = random.integer(1, 4);
  for (int change = 0; change < changes && !bytes.empty(); ++change) {
    const auto last = static_cast<int>(bytes.size()) - 1;
    const auto place = static_cast<std::size_t>(random.integer(0, last));
    switch (random.integer(0, 4)) {
      case 0:
        bytes[place] = static_cast<char>(static_cast<unsigned char>(bytes[place]) ^ (1u << random.integer(0, 7)));
        break;
      case 1:
        bytes.resize(place);
        break;
      case 2:
        bytes.insert(place, inserted[static_cast<std::size_t>(random.integer(0, 15))]);
        break;
      case 3:
        bytes.erase(place, static_cast<std::size_t>(random.integer(1, 12)));
        break;
      default:
        bytes.insert(place, bytes.substr(static_cast<std::size_t>(random.integer(0, last)),
                                         static_cast<std::size_t>(random.integer(1, 60))));
    }
  }
  return bytes;
}

class MutatedJson : public ::testing::Test {
 protected:
  // Most mutations must be refused, or the mutations are too weak to say anything.
  static void expect_read_or_refused(const std::string& bytes, std::uint64_t seed, std::uint64_t fewest_refused,
                                     const std::function<void(const std::string&, std::uint64_t)>& read) {
    read(bytes, 0);
    std::uint64_t refused = 0;
    for (std::uint64_t mutation = 0; mutation < kMutations; ++mutation) {
      SampleRandom random{seed, 0, mutation};
      const auto damaged = mutate(bytes, random);
      try {
        read(damaged, mutation);
      } catch (const EnvironmentError& error) {
        ++refused;
        ASSERT_NE(std::string_view{error.what()}.find("expected"), std::string_view::npos) << error.what();
      }
    }
    EXPECT_GE(refused, fewest_refused);
  }

  const SilentLog silence_;  // findings in damaged files would fill the log
};

CocoOptions options_of(std::uint64_t mutation) {
  return {.use = mutation % 3 == 0 ? CocoUse::evaluation : CocoUse::training,
          .malformed = mutation % 4 == 1 ? CocoMalformed::leave_out : CocoMalformed::refuse};
}

TEST_F(MutatedJson, InstancesAreReadOrRefused) {
  expect_read_or_refused(kInstances, 1, kMutations / 2, [](const std::string& bytes, std::uint64_t mutation) {
    const auto found = read_coco(*memory_file(bytes), options_of(mutation));
    for (const auto& image : found.images) ASSERT_LE(found.file_name(image).size(), bytes.size());
    ASSERT_LE(found.objects.shapes.coordinates.size(), bytes.size());
    ASSERT_LE(found.objects.shapes.counts.size(), bytes.size());
    ASSERT_EQ(found.objects.first_of_image.back(), found.objects.annotations.size());
  });
}

TEST_F(MutatedJson, ResultsAreReadOrRefused) {
  const auto truth = read_coco(*memory_file(kInstances));
  expect_read_or_refused(kResults, 2, kMutations / 2, [&](const std::string& bytes, std::uint64_t mutation) {
    const auto found = read_coco_results(*memory_file(bytes), truth, options_of(mutation));
    ASSERT_LE(found.annotations.size(), bytes.size());
  });
}

TEST_F(MutatedJson, JsonLinesAreReadOrRefused) {
  expect_read_or_refused(kLines, 3, kMutations / 4, [](const std::string& bytes, std::uint64_t) {
    const JsonLines file{memory_file(bytes)};
    ASSERT_LE(file.size(), bytes.size());
    for (std::uint64_t row = 0; row < file.size(); ++row) file.field(row, "text");
  });
}

TEST_F(MutatedJson, CsvRowsAreReadOrRefused) {
  expect_read_or_refused(kCsv, 4, kMutations / 4, [](const std::string& bytes, std::uint64_t) {
    const CsvFile file{memory_file(bytes)};
    for (std::uint64_t row = 0; row < file.size(); ++row) ASSERT_EQ(file.row(row).size(), file.columns().size());
  });
}

TEST(MutatedRunLength, StringsAreDecodedOrRefused) {
  // pycocotools 2.0.11: mask.frPyObjects([[10.5, 2.25, 30.75, 8.5, 25.2, 28.9, 6.1, 20.3]], 32, 40)[0]['counts']
  const std::string whole = "c61k05K4L5K4O20O01O010O00010O0010O01O010OO1L5L3L4L4Mk8";
  std::uint64_t refused = 0;
  for (std::uint64_t mutation = 0; mutation < kMutations; ++mutation) {
    SampleRandom random{5, 0, mutation};
    const auto damaged = mutate(whole, random);
    try {
      const auto mask = from_coco_string(damaged, 32, 40);
      std::vector<std::uint8_t> pixels(32 * 40);
      decode_mask(mask, pixels);
      const auto ones = static_cast<std::uint64_t>(std::count(pixels.begin(), pixels.end(), 1));
      ASSERT_EQ(ones, mask_area(mask));
      ASSERT_LE(mask.counts.size(), damaged.size());
    } catch (const EnvironmentError&) {
      ++refused;
    }
  }
  EXPECT_GE(refused, kMutations / 2);
}

}  // namespace
}  // namespace libtrain::data
