#pragma once

#include <algorithm>

namespace libtrain::data {

/// A rectangle in pixels as COCO has it: its top left corner, which may be a fraction, its width and its height.
struct BoundingBox {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;

  bool operator==(const BoundingBox&) const = default;
};

/// What overlaps are measured against: with `crowd` a truth is a region of many objects, any part of which a detection
/// may match, and the overlap is divided by the detection's area instead of the union's.
enum class Truth { object, crowd };

/// Intersection over union of continuous rectangles (no pixel is added to a side), 0 where they do not overlap:
/// bbIou of pycocotools.
inline double box_iou(const BoundingBox& detection, const BoundingBox& truth, Truth kind = Truth::object) {
  const double width = std::min(detection.x + detection.width, truth.x + truth.width) - std::max(detection.x, truth.x);
  if (width <= 0) return 0;
  const double height =
      std::min(detection.y + detection.height, truth.y + truth.height) - std::max(detection.y, truth.y);
  if (height <= 0) return 0;
  const double intersection = width * height;
  const double area = detection.width * detection.height;
  if (kind == Truth::crowd) return intersection / area;
  return intersection / (area + truth.width * truth.height - intersection);
}

}  // namespace libtrain::data
