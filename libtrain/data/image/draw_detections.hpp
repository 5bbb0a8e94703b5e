#pragma once

#include <optional>
#include <span>
#include <string>

#include <libtrain/data/formats/run_length.hpp>
#include <libtrain/data/image/geometry.hpp>
#include <libtrain/data/image/image.hpp>

namespace libtrain::data {

/// An object to draw: one that a network has found, or one of the ground truth.
struct DrawnDetection {
  ImageBox box = {};  ///< left, top, right, bottom in pixels
  std::string name = {};
  std::optional<double> score = {};
  std::optional<RunLength> mask = {};  ///< of the image's size
};

struct DrawDetectionsOptions {
  double mask_opacity = 0.5;  ///< from 0 to 1
  /// The width of lines, and of a dot of the letters, which are 5 x 8 dots; 0: 1 for images with a shorter side below
  /// 400 pixels, and 1 more for each 400 pixels.
  int scale = 0;
  /// Each pixel becomes a square of this side before anything is drawn, so that labels do not hide a small image. Boxes
  /// and masks are those of the image before that.
  int enlarge = 1;
};

/// Draws for each detection its mask, the mask's outline, its box, and a label of name and score ("circle 0.97") above
/// the box, or at the top inside it if there is no room above; a label is moved to where it fits into the image.
/// Detection number k has distinct_color(k). Those with smaller numbers are drawn over the others, because lists are
/// sorted by falling score. Without a name, a score or a mask, that part is left out.
///
/// Throws UsageError for an image that is empty or does not match its bytes, for a mask of another size or whose runs
/// do not add up, for an option out of its range, and if the image would be enlarged to more than kMaxPixels; the image
/// may then have some of the drawings. Any thread may call it.
void draw_detections(Image& image, std::span<const DrawnDetection> detections,
                     const DrawDetectionsOptions& options = {});

}  // namespace libtrain::data
