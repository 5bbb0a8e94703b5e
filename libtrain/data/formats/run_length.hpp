#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace libtrain::data {

/// A rectangle in pixels as in COCO: its top left corner, width and height, which may be fractions.
struct BoundingBox {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;

  bool operator==(const BoundingBox&) const = default;
};

/// The kind of a ground truth: `crowd` is a region of many objects, any part of which a detection may match, so that
/// the overlap is divided by the detection's area instead of that of the union.
enum class GroundTruth { object, crowd };

/// Intersection over union of continuous rectangles (no pixel is added to a side), 0 if they do not overlap: bbIou of
/// pycocotools.
inline double box_iou(const BoundingBox& detection, const BoundingBox& truth, GroundTruth kind = GroundTruth::object) {
  const double width = std::min(detection.x + detection.width, truth.x + truth.width) - std::max(detection.x, truth.x);
  if (width <= 0) return 0;
  const double height =
      std::min(detection.y + detection.height, truth.y + truth.height) - std::max(detection.y, truth.y);
  if (height <= 0) return 0;
  const double intersection = width * height;
  const double area = detection.width * detection.height;
  if (kind == GroundTruth::crowd) return intersection / area;
  return intersection / (area + truth.width * truth.height - intersection);
}

/// A binary mask in the representation of pycocotools: the lengths of runs of equal pixels in column-major order. The
/// first run is zeros and may have length 0. The runs of a valid mask add up to height * width. These functions share
/// no state: any thread may call them.
struct RunLength {
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  std::vector<std::uint32_t> counts = {};

  bool operator==(const RunLength&) const = default;
};

/// A view of a RunLength, which does not own the counts.
struct RunLengthView {
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  std::span<const std::uint32_t> counts = {};

  RunLengthView() = default;
  RunLengthView(std::uint32_t mask_height, std::uint32_t mask_width, std::span<const std::uint32_t> runs)
      : height(mask_height), width(mask_width), counts(runs) {}
  RunLengthView(const RunLength& owner) : RunLengthView(owner.height, owner.width, owner.counts) {}
};

/// The maximum number of pixels of a mask: positions fit a signed 32-bit number.
inline constexpr std::uint64_t kMaxMaskPixels = 0x7fffffff;

/// The runs of `mask`: height * width bytes in column-major order, in which equal neighbours form a run (all bytes
/// other than 0 should be equal). Throws UsageError for another size and for more than kMaxMaskPixels.
RunLength encode_mask(std::span<const std::uint8_t> mask, std::uint32_t height, std::uint32_t width);

/// Writes the mask's height * width bytes of 0 and 1 to `mask`, in column-major order. Throws UsageError if `mask` has
/// another size, EnvironmentError if the runs do not add up to it.
void decode_mask(RunLengthView runs, std::span<std::uint8_t> mask);

/// The string form in COCO's result files. A count, or from the fourth count on its difference from the count two
/// before, is written as groups of five bits, the lowest first, and a sixth bit that is set if more groups follow; a
/// group is the character 48 + group.
std::string to_coco_string(RunLengthView runs);

/// The inverse. Throws UsageError for more than kMaxMaskPixels; EnvironmentError that names the position for an invalid
/// character, a count out of range, and runs that do not add up to height * width.
RunLength from_coco_string(std::string_view encoded, std::uint32_t height, std::uint32_t width);

/// The number of ones in the mask.
std::uint64_t mask_area(RunLengthView runs);

/// The smallest rectangle around the ones, in whole numbers; all 0 if there are none (as in pycocotools for masks that
/// it encoded).
BoundingBox mask_box(RunLengthView runs);

enum class Merge { united, intersected };

/// The union or the intersection of masks of one size; an empty RunLength for no masks. Throws UsageError if the sizes
/// differ.
RunLength merge_masks(std::span<const RunLengthView> masks, Merge how);

/// Intersection over union as in rleIou of pycocotools: -1 if the boxes around the masks overlap but the masks have
/// different sizes, 0 if nothing overlaps.
double mask_iou(RunLengthView detection, RunLengthView truth, GroundTruth kind = GroundTruth::object);

namespace detail {

/// height * width. Throws UsageError for more than kMaxMaskPixels.
std::uint64_t mask_pixels(std::uint32_t height, std::uint32_t width);

/// Decodes `encoded` and appends its counts, at most one per character. Returns a description of the error if it cannot
/// be decoded or the counts do not add up to `pixels`; some counts may have been appended by then.
std::optional<std::string> append_coco_counts(std::string_view encoded, std::uint64_t pixels,
                                              std::vector<std::uint32_t>& counts);

}  // namespace detail

}  // namespace libtrain::data
