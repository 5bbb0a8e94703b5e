#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <libtrain/data/formats/run_length.hpp>
#include <libtrain/data/image/geometry.hpp>
#include <libtrain/data/image/image.hpp>

namespace libtrain::data {

// These functions draw on an 8-bit image, grey or RGB. What lies outside of the image is left out. They throw
// UsageError for an image that is empty or does not match its bytes, and share no state: any thread may call them.

/// The colour of object number 0, 1, 2, ... of a picture: a bright one, whose hue is the golden ratio of the colour
/// wheel after that of the previous number, so that the hues of any first few are far apart.
FillColor distinct_color(std::size_t number);

/// Under the mask, a value v becomes v + (color - v) * opacity, rounded. Throws UsageError for a mask of another size
/// than the image or whose runs do not add up, and for an opacity that is not from 0 to 1.
void draw_mask(Image& image, RunLengthView mask, const FillColor& color, double opacity = 0.5);

/// Colours the pixels of the mask from which at most `thickness` steps up, down, left or right lead out of the mask or
/// out of the image. Throws UsageError for such a mask, and for a thickness below 1.
void draw_outline(Image& image, RunLengthView mask, const FillColor& color, int thickness = 1);

/// Colours the frame of a box: of the pixels that the box touches, the outer ones, `thickness` on each side. Of a box
/// that is partly outside of the image, the sides outside are not drawn; a box without area, or with a coordinate that
/// is not a number, is not drawn at all. Throws UsageError for a thickness below 1.
void draw_rectangle(Image& image, const ImageBox& box, const FillColor& color, int thickness = 1);

/// A size in pixels.
struct TextSize {
  std::int64_t width = 0;
  std::int64_t height = 0;
};

/// The size of a line of text with its background: per character 6 * scale pixels, and one more `scale`; the height is
/// 10 * scale. A character of UTF-8 that is not ASCII is drawn as a box. Throws UsageError for a scale below 1.
TextSize text_size(std::string_view line, int scale = 1);

/// Draws a line of text on a filled rectangle of text_size(), whose top left pixel is at x, y. Throws as text_size().
void draw_text(Image& image, int x, int y, std::string_view line, const FillColor& color, const FillColor& background,
               int scale = 1);

namespace detail {

/// Throws UsageError for an image that is empty or does not match its bytes, and for a mask of another size than the
/// image or whose runs do not add up.
void require_fitting(const Image& image, RunLengthView mask);

}  // namespace detail

}  // namespace libtrain::data
