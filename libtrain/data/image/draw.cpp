#include <libtrain/data/image/draw.hpp>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/detail/font.hpp>

namespace libtrain::data {

namespace {

constexpr int kAdvance = detail::kGlyphWidth + 1;  // from a character to the next
constexpr int kTextBorder = 1;

void require_positive(std::string_view name, int value) {
  if (value < 1) throw UsageError(text("The ", name, " is ", value, "; it must be at least 1."));
}

void set_pixel(Image& image, int x, int y, const FillColor& color) {
  std::copy_n(color.begin(), image.channels, image.row(y) + std::ptrdiff_t{x} * image.channels);
}

// Columns from `left` up to `right` and rows from `top` up to `bottom`, as far as they are inside.
void fill(Image& image, std::int64_t left, std::int64_t top, std::int64_t right, std::int64_t bottom,
          const FillColor& color) {
  const auto inside = [](std::int64_t value, int size) {
    return static_cast<int>(std::clamp<std::int64_t>(value, 0, size));
  };
  for (int y = inside(top, image.height); y < inside(bottom, image.height); ++y) {
    for (int x = inside(left, image.width); x < inside(right, image.width); ++x) set_pixel(image, x, y, color);
  }
}

// Whether all pixels within `steps` in the four directions are in the mask, which is column-major.
bool is_interior(const std::vector<std::uint8_t>& mask, const Image& image, int x, int y, int steps) {
  if (x < steps || y < steps || x >= image.width - steps || y >= image.height - steps) return false;
  const auto at = [&](int column, int row) {
    return mask[static_cast<std::size_t>(column) * static_cast<std::size_t>(image.height) +
                static_cast<std::size_t>(row)] != 0;
  };
  for (int step = 1; step <= steps; ++step) {
    if (!at(x - step, y) || !at(x + step, y) || !at(x, y - step) || !at(x, y + step)) return false;
  }
  return true;
}

// Calls visit(x, y) for each pixel of the mask.
template <typename Visit>
void for_each_pixel(RunLengthView mask, const Visit& visit) {
  std::uint64_t position = 0;
  for (std::size_t run = 0; run < mask.counts.size(); ++run) {
    const std::uint64_t end = position + mask.counts[run];
    for (; run % 2 == 1 && position < end; ++position) {
      visit(static_cast<int>(position / mask.height), static_cast<int>(position % mask.height));
    }
    position = end;
  }
}

// A coordinate far outside of any image is drawn like one just outside of all of them.
std::int64_t whole(double coordinate) {
  constexpr double kFar = 1e10;
  return static_cast<std::int64_t>(std::clamp(coordinate, -kFar, kFar));
}

// The first byte of each character of UTF-8.
std::vector<char> characters_of(std::string_view line) {
  std::vector<char> characters;
  std::copy_if(line.begin(), line.end(), std::back_inserter(characters),
               [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; });
  return characters;
}

}  // namespace

void detail::require_fitting(const Image& image, RunLengthView mask) {
  detail::require_valid_image(image);
  if (static_cast<std::int64_t>(mask.width) != image.width || static_cast<std::int64_t>(mask.height) != image.height) {
    throw UsageError(text("A mask of ", mask.width, " x ", mask.height, " pixels cannot be drawn on an image of ",
                          image.width, " x ", image.height, ". Give the mask of this image."));
  }
  const auto covered = std::accumulate(mask.counts.begin(), mask.counts.end(), std::uint64_t{0});
  if (covered != std::uint64_t{mask.width} * mask.height) {
    throw UsageError(text("The runs of a mask of ", mask.width, " x ", mask.height, " pixels cover ", covered,
                          " pixels. Make it with encode_mask()."));
  }
}

FillColor distinct_color(std::size_t number) {
  // The hue in 32 bits: six sectors of the wheel, in each of which one channel rises or falls.
  const auto hue = static_cast<std::uint32_t>(number * 0x9e3779b9u);
  const std::uint64_t sixfold = std::uint64_t{hue} * 6;
  const auto sector = sixfold >> 32;
  constexpr int kLow = 40;
  constexpr int kHigh = 255;
  const int rise = static_cast<int>(((sixfold & 0xffffffffu) * (kHigh - kLow)) >> 32);
  const auto rising = static_cast<std::uint8_t>(kLow + rise);
  const auto falling = static_cast<std::uint8_t>(kHigh - rise);
  switch (sector) {
    case 0:
      return {kHigh, rising, kLow};
    case 1:
      return {falling, kHigh, kLow};
    case 2:
      return {kLow, kHigh, rising};
    case 3:
      return {kLow, falling, kHigh};
    case 4:
      return {rising, kLow, kHigh};
    default:
      return {kHigh, kLow, falling};
  }
}

void draw_mask(Image& image, RunLengthView mask, const FillColor& color, double opacity) {
  detail::require_fitting(image, mask);
  if (!(opacity >= 0 && opacity <= 1)) {
    throw UsageError(text("The opacity of a mask is ", opacity, "; it must be from 0 to 1."));
  }
  for_each_pixel(mask, [&](int x, int y) {
    std::uint8_t* const pixel = image.row(y) + std::ptrdiff_t{x} * image.channels;
    for (int channel = 0; channel < image.channels; ++channel) {
      const double value = pixel[channel];
      const double target = color.at(static_cast<std::size_t>(channel));
      pixel[channel] = static_cast<std::uint8_t>(value + (target - value) * opacity + 0.5);
    }
  });
}

void draw_outline(Image& image, RunLengthView mask, const FillColor& color, int thickness) {
  detail::require_fitting(image, mask);
  require_positive("thickness of an outline", thickness);
  std::vector<std::uint8_t> pixels(std::size_t{mask.height} * mask.width);
  decode_mask(mask, pixels);
  for_each_pixel(mask, [&](int x, int y) {
    if (!is_interior(pixels, image, x, y, thickness)) set_pixel(image, x, y, color);
  });
}

void draw_rectangle(Image& image, const ImageBox& box, const FillColor& color, int thickness) {
  detail::require_valid_image(image);
  require_positive("thickness of a rectangle", thickness);
  if (!(box[0] < box[2] && box[1] < box[3])) return;
  const std::int64_t left = whole(std::floor(box[0]));
  const std::int64_t top = whole(std::floor(box[1]));
  const std::int64_t right = whole(std::ceil(box[2]));
  const std::int64_t bottom = whole(std::ceil(box[3]));
  fill(image, left, top, right, std::min(bottom, top + thickness), color);
  fill(image, left, std::max(top, bottom - thickness), right, bottom, color);
  fill(image, left, top, std::min(right, left + thickness), bottom, color);
  fill(image, std::max(left, right - thickness), top, right, bottom, color);
}

TextSize text_size(std::string_view line, int scale) {
  require_positive("scale of a text", scale);
  const auto characters = static_cast<std::int64_t>(characters_of(line).size());
  return {.width = (characters * kAdvance + kTextBorder) * scale,
          .height = (detail::kGlyphHeight + 2 * kTextBorder) * std::int64_t{scale}};
}

void draw_text(Image& image, int x, int y, std::string_view line, const FillColor& color, const FillColor& background,
               int scale) {
  detail::require_valid_image(image);
  const auto [width, height] = text_size(line, scale);
  fill(image, x, y, x + width, y + height, background);
  const std::int64_t top = y + std::int64_t{kTextBorder} * scale;
  std::int64_t left = x + std::int64_t{kTextBorder} * scale;
  for (const char character : characters_of(line)) {
    const detail::Glyph& glyph = detail::glyph_of(character);
    for (std::int64_t column = 0; column < detail::kGlyphWidth; ++column) {
      for (std::int64_t row = 0; row < detail::kGlyphHeight; ++row) {
        if ((glyph.at(static_cast<std::size_t>(column)) >> row & 1) == 0) continue;
        fill(image, left + column * scale, top + row * scale, left + (column + 1) * scale, top + (row + 1) * scale,
             color);
      }
    }
    left += std::int64_t{kAdvance} * scale;
  }
}

}  // namespace libtrain::data
