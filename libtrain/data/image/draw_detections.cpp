#include <libtrain/data/image/draw_detections.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/decode_options.hpp>
#include <libtrain/data/image/draw.hpp>

namespace libtrain::data {

namespace {

constexpr int kPixelsPerScale = 400;  // of the shorter side

int scale_of(const Image& image, const DrawDetectionsOptions& options) {
  if (options.scale < 0)
    throw UsageError(text("The scale of drawings is ", options.scale, "; it must not be negative."));
  if (options.scale > 0) return options.scale;
  return 1 + std::min(image.width, image.height) / kPixelsPerScale;
}

std::string two_decimals(double score) {
  std::array<char, 400> digits{};  // the largest double has 309 before the point
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), score, std::chars_format::fixed, 2);
  return {digits.data(), end.ptr};
}

std::string label_of(const DrawnDetection& detection) {
  if (!detection.score) return detection.name;
  return detection.name + (detection.name.empty() ? "" : " ") + two_decimals(*detection.score);
}

FillColor readable_on(const FillColor& background) {
  const int luma = (299 * background[0] + 587 * background[1] + 114 * background[2]) / 1000;
  return luma > 140 ? FillColor{0, 0, 0} : FillColor{255, 255, 255};
}

// Each element `factor` times, and then each line.
std::vector<std::uint8_t> repeated(const std::vector<std::uint8_t>& bytes, std::size_t line_bytes,
                                   std::size_t element_bytes, std::size_t factor) {
  std::vector<std::uint8_t> result;
  result.reserve(bytes.size() * factor * factor);
  for (auto line = bytes.begin(); line != bytes.end(); line += static_cast<std::ptrdiff_t>(line_bytes)) {
    for (std::size_t copy = 0; copy < factor; ++copy) {
      for (std::size_t byte = 0; byte < line_bytes * factor; ++byte) {
        const std::size_t element = byte / (element_bytes * factor);
        result.push_back(line[static_cast<std::ptrdiff_t>(element * element_bytes + byte % element_bytes)]);
      }
    }
  }
  return result;
}

Image enlarged(const Image& image, int factor) {
  const auto sides = static_cast<std::uint64_t>(factor);
  if (factor < 1 ||
      sides > kMaxPixels / static_cast<std::uint64_t>(image.width) / sides / static_cast<std::uint64_t>(image.height)) {
    throw UsageError(text("An image of ", image.width, " x ", image.height, " pixels cannot be enlarged by ", factor,
                          ": expected 1 or more, and at most ", kMaxPixels, " pixels."));
  }
  return {.width = image.width * factor,
          .height = image.height * factor,
          .channels = image.channels,
          .pixels = repeated(image.pixels, image.row_bytes(), static_cast<std::size_t>(image.channels), sides)};
}

DrawnDetection enlarged(DrawnDetection detection, int factor) {
  for (auto& coordinate : detection.box) coordinate *= factor;
  if (!detection.mask) return detection;
  const auto sides = static_cast<std::uint32_t>(factor);
  const auto& [height, width, counts] = *detection.mask;
  std::vector<std::uint8_t> mask(std::size_t{height} * width);
  decode_mask(*detection.mask, mask);
  detection.mask = encode_mask(repeated(mask, height, 1, sides), height * sides, width * sides);
  return detection;
}

// From `wanted` to where `length` pixels are inside of `size`; 0 if they are not anywhere.
int moved_inside(double wanted, std::int64_t length, int size) {
  const auto last = std::max<std::int64_t>(size - length, 0);
  return static_cast<int>(std::clamp(std::floor(wanted), 0.0, static_cast<double>(last)));
}

void draw_label(Image& image, const DrawnDetection& detection, const FillColor& color, int scale) {
  const std::string label = label_of(detection);
  const auto& [left, top, right, bottom] = detection.box;
  if (label.empty() || !(left < right && top < bottom)) return;
  const TextSize size = text_size(label, scale);
  const double above = top - static_cast<double>(size.height);
  draw_text(image, moved_inside(left, size.width, image.width),
            moved_inside(above >= 0 ? above : top, size.height, image.height), label, readable_on(color), color, scale);
}

}  // namespace

void draw_detections(Image& image, std::span<const DrawnDetection> detections, const DrawDetectionsOptions& options) {
  detail::require_valid_image(image);
  if (options.enlarge != 1) {
    Image large = enlarged(image, options.enlarge);
    std::vector<DrawnDetection> larger;
    for (const auto& each : detections) {
      if (each.mask) detail::require_fitting(image, *each.mask);
      larger.push_back(enlarged(each, options.enlarge));
    }
    image = std::move(large);
    return draw_detections(image, larger, {.mask_opacity = options.mask_opacity, .scale = options.scale});
  }
  const int scale = scale_of(image, options);
  const auto from_the_last = [&](const std::function<void(const DrawnDetection&, const FillColor&)>& draw) {
    for (std::size_t k = detections.size(); k-- > 0;) draw(detections[k], distinct_color(k));
  };
  from_the_last([&](const DrawnDetection& each, const FillColor& color) {
    if (each.mask) draw_mask(image, *each.mask, color, options.mask_opacity);
  });
  // Over all masks, so that no line is faded.
  from_the_last([&](const DrawnDetection& each, const FillColor& color) {
    if (each.mask) draw_outline(image, *each.mask, color, scale);
    draw_rectangle(image, each.box, color, scale);
  });
  from_the_last([&](const DrawnDetection& each, const FillColor& color) { draw_label(image, each, color, scale); });
}

}  // namespace libtrain::data
