// libFuzzer target: any bytes as COCO annotations and as COCO results are read or refused with an EnvironmentError.
//
// The first byte chooses the window, so that objects are cut at all places.

#include <cstddef>
#include <cstdint>
#include <string>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/data/formats/coco.hpp>
#include <libtrain/data/formats/file_buffer.hpp>

namespace lt = libtrain;
namespace data = libtrain::data;

namespace {

const data::CocoAnnotations& truth() {
  static const data::CocoAnnotations annotations = data::read_coco(
      *data::file_in_memory("truth", R"({"images": [{"id": 1, "width": 8, "height": 8, "file_name": "a"}],
                   "categories": [{"id": 1, "name": "b"}], "annotations": []})"));
  return annotations;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size == 0) return 0;
  lt::set_log_level(lt::LogLevel::error);
  const data::CocoOptions options{.use = data::CocoUse::evaluation, .window_bytes = bytes[0]};
  const std::string json{reinterpret_cast<const char*>(bytes) + 1, size - 1};
  try {
    data::read_coco(*data::file_in_memory("fuzz", json), options);
  } catch (const lt::EnvironmentError&) {
  }
  try {
    data::read_coco_results(*data::file_in_memory("fuzz", json), truth(), options);
  } catch (const lt::EnvironmentError&) {
  }
  return 0;
}
