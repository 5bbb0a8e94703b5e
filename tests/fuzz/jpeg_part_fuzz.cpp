// A rectangle of a JPEG: decoded by itself, from restart segments where there are any, it has the pixels that it has in
// the whole picture, also once restart markers have been added.
//
// The first four bytes are the columns and the rows where the rectangle begins and ends, the fifth says how far the
// picture is scaled.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/data/image/decode_image.hpp>
#include <libtrain/data/image/detail/restart.hpp>
#include <libtrain/data/image/image_header.hpp>

#include <tests/data/image/jpeg_writer.hpp>
#include <tests/fuzz/jpeg_seeds.hpp>
#include <tests/fuzz/target.hpp>

namespace data = libtrain::data;

namespace {

constexpr std::size_t kPlaceBytes = 5;
constexpr std::uint64_t kMaxPixels = 1 << 14;

// From one of two pixels on a line of `size` to the other.
void set_range(int first, int second, int size, int& begin, int& length) {
  begin = std::min(first % size, second % size);
  length = std::max(first % size, second % size) - begin + 1;
}

data::Crop crop_in(const data::Image& image, std::span<const std::uint8_t> place) {
  data::Crop crop;
  set_range(place[0], place[1], image.width, crop.x, crop.width);
  set_range(place[2], place[3], image.height, crop.y, crop.height);
  return crop;
}

void compare(std::span<const std::uint8_t> place, std::span<const std::byte> file) {
  if (data::sniff_image_format(file) != data::ImageFormat::jpeg) return;
  static data::ImageDecoder decoder;
  data::DecodeOptions options{
      .scale_denominator = 1 << place[4] % 4, .maximum_pixels = kMaxPixels, .maximum_warnings = 0};
  std::optional<data::Image> whole;
  try {
    whole = decoder.decode(file, options);
    ++read_inputs;
  } catch (const libtrain::EnvironmentError&) {
  }
  options.crop = whole ? crop_in(*whole, place) : data::Crop{.width = 1, .height = 1};
  try {
    const data::Image part = decoder.decode(file, options);
    if (whole) require(part.pixels == libtrain::test::cropped(*whole, *options.crop).pixels);
  } catch (const libtrain::EnvironmentError&) {
    require(!whole);
  }
  std::optional<std::vector<std::byte>> marked;
  try {
    marked = data::detail::add_restart_markers(file, {.maximum_pixels = kMaxPixels});
  } catch (const libtrain::EnvironmentError&) {
  }
  if (!marked || !whole) return;
  require(decoder.decode(*marked, options).pixels == libtrain::test::cropped(*whole, *options.crop).pixels);
}

}  // namespace

// Edges of a rectangle that are those of MCUs are where upsampling looks beyond it.
std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds;
  for (const std::string& file : jpeg_seeds()) {
    for (const char scale : {'\0', '\1'}) seeds.push_back(std::string{'\x10', '\x1f', '\x10', '\x12', scale} + file);
  }
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < kPlaceBytes) return 0;
  const std::span input(data, size);
  compare(input.first(kPlaceBytes), std::as_bytes(input.subspan(kPlaceBytes)));
  return 0;
}
