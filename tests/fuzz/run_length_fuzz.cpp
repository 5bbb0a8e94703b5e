// libFuzzer target: any bytes as a run-length string, and as the corners of a polygon. What can be decoded must keep
// its promises; the program traps where it does not.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/data/formats/detail/polygon_mask.hpp>
#include <libtrain/data/formats/run_length.hpp>

#include <tests/fuzz/target.hpp>

namespace lt = libtrain;
namespace data = libtrain::data;

namespace {

void check(const data::RunLength& mask) {
  std::vector<std::uint8_t> pixels(std::size_t{mask.height} * mask.width);
  data::decode_mask(mask, pixels);
  require(static_cast<std::uint64_t>(std::count(pixels.begin(), pixels.end(), 1)) == data::mask_area(mask));
  require(data::from_coco_string(data::to_coco_string(mask), mask.height, mask.width) == mask);

  const auto canonical = data::encode_mask(pixels, mask.height, mask.width);
  require(data::mask_box(mask) == data::mask_box(canonical));
  if (data::mask_area(mask) > 0) require(data::mask_iou(canonical, canonical) == 1);
  const std::vector<data::RunLengthView> masks{mask, canonical};
  data::merge_masks(masks, data::Merge::united);
  data::merge_masks(masks, data::Merge::intersected);
}

}  // namespace

// The first two bytes are the height and the width less one.
std::vector<std::string> fuzz_seeds() {
  const std::vector<std::uint8_t> pixels{0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 1};
  const std::string corners("\x0a\0\x0a\0\x64\0\x0a\0\x64\0\x64\0\xf6\xff\x32\0", 16);
  return {"\x02\x03" + data::to_coco_string(data::encode_mask(pixels, 3, 4)), "\x0b\x0b" + corners};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size < 2) return 0;
  const std::uint32_t height = 1u + bytes[0] % 64;
  const std::uint32_t width = 1u + bytes[1] % 64;
  try {
    check(data::from_coco_string({reinterpret_cast<const char*>(bytes) + 2, size - 2}, height, width));
    ++read_inputs;
  } catch (const lt::EnvironmentError&) {
  }
  // Steps of a tenth, from beyond one side of the picture to beyond the other.
  std::vector<double> polygon;
  for (std::size_t position = 2; position + 3 < size && polygon.size() < 40; position += 4) {
    for (std::size_t half = 0; half < 4; half += 2) {
      std::int16_t tenths = 0;
      std::memcpy(&tenths, bytes + position + half, sizeof tenths);
      polygon.push_back(tenths % 1000 / 10.0);
    }
  }
  if (polygon.empty()) return 0;
  check(data::detail::polygon_mask(polygon, height, width));
  ++read_inputs;
  return 0;
}
