// libFuzzer target: any bytes as COCO annotations and as COCO results are read or refused with an EnvironmentError.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/data/formats/coco.hpp>

#include <tests/data/memory_file.hpp>
#include <tests/fuzz/target.hpp>

namespace lt = libtrain;
namespace data = libtrain::data;

namespace {

const data::CocoAnnotations& truth() {
  static const data::CocoAnnotations annotations =
      data::read_coco(*data::memory_file(R"({"images": [{"id": 1, "width": 8, "height": 8, "file_name": "a"}],
                   "categories": [{"id": 1, "name": "b"}], "annotations": []})"));
  return annotations;
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  const std::string annotations = R"({"info": {"year": 2017, "more": [1.5e3, null, true, "\u00e9"]},
      "images": [{"id": 7, "width": 8, "height": 6, "file_name": "a.jpg"}, {"file_name": "b", "height": 4, "width": 4, "id": 2}],
      "annotations": [
        {"id": 1, "image_id": 7, "category_id": 3, "bbox": [1, 1, 4.5, 3], "area": 9.25, "iscrowd": 0,
         "segmentation": [[1, 1, 5.5, 1, 5.5, 4, 1, 4], [0.5, 0, 2, 0, 2, 2]]},
        {"id": 2, "image_id": 7, "category_id": 1, "bbox": [0, 0, 8, 6], "area": 20, "iscrowd": 1,
         "segmentation": {"size": [6, 8], "counts": [4, 20, 24]}},
        {"id": 3, "image_id": 2, "category_id": 1, "bbox": [0, 0, 2, 2], "iscrowd": 1,
         "segmentation": {"counts": "04<", "size": [4, 4]}}],
      "categories": [{"id": 3, "name": "cat"}, {"id": 1, "name": "dog", "supercategory": "animal"}]})";
  const std::string results = R"([{"image_id": 1, "category_id": 1, "score": 0.75, "bbox": [1, 2, 3, 4]},
      {"image_id": 1, "category_id": 1, "score": 1e-3, "segmentation": {"size": [8, 8], "counts": [10, 20, 34]}}])";
  return {annotations, results};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  lt::set_log_level(lt::LogLevel::error);
  const bool leave_out = size % 2 == 0;
  const data::CocoOptions options{
      .use = data::CocoUse::evaluation,
      .malformed = leave_out ? data::CocoMalformed::leave_out : data::CocoMalformed::refuse};
  const std::string json{reinterpret_cast<const char*>(bytes), size};
  try {
    data::read_coco(*data::memory_file(json), options);
    ++read_inputs;
  } catch (const lt::EnvironmentError&) {
  }
  try {
    data::read_coco_results(*data::memory_file(json), truth(), options);
    ++read_inputs;
  } catch (const lt::EnvironmentError&) {
  }
  return 0;
}
