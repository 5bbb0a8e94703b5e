#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
enum class GroundTruth { object, crowd };

/// Intersection over union of continuous rectangles (no pixel is added to a side), 0 where they do not overlap:
/// bbIou of pycocotools.
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

/// A binary mask as pycocotools keeps it: the lengths of runs of equal pixels, down the columns from the left one to
/// the right one, the first run being zeros (it may be of length 0). A valid one has runs that add up to height *
/// width. Nothing here is shared: any thread may call any of these functions.
struct RunLength {
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  std::vector<std::uint32_t> counts = {};

  bool operator==(const RunLength&) const = default;
};

/// The same without owning the counts.
struct RunLengthView {
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  std::span<const std::uint32_t> counts = {};

  RunLengthView() = default;
  RunLengthView(std::uint32_t mask_height, std::uint32_t mask_width, std::span<const std::uint32_t> runs)
      : height(mask_height), width(mask_width), counts(runs) {}
  RunLengthView(const RunLength& owner) : RunLengthView(owner.height, owner.width, owner.counts) {}
};

/// Masks have at most so many pixels: positions stay within a signed 32-bit number.
inline constexpr std::uint64_t kMaxMaskPixels = 0x7fffffff;

/// The runs of `mask`: height * width bytes, column after column, of which equal neighbours make a run (any byte but 0
/// is meant to be the same one). Throws UsageError for another size and for more than kMaxMaskPixels.
RunLength encode_mask(std::span<const std::uint8_t> mask, std::uint32_t height, std::uint32_t width);

/// Writes the mask's height * width bytes of 0 and 1 to `mask`, column after column. Throws UsageError where `mask` has
/// another size, EnvironmentError where the runs do not add up to it.
void decode_mask(RunLengthView runs, std::span<std::uint8_t> mask);

/// The string form of COCO's result files. A count, from the fourth on its difference to the one two before, is written
/// as groups of five bits, the lowest first, with a sixth bit where more follow; a group is the character 48 + group.
std::string to_coco_string(RunLengthView runs);

/// The other way round. Throws UsageError for more than kMaxMaskPixels; EnvironmentError that names the position for a
/// character that cannot be there, a count out of range, and runs that do not add up to height * width.
RunLength from_coco_string(std::string_view encoded, std::uint32_t height, std::uint32_t width);

/// The number of ones.
std::uint64_t mask_area(RunLengthView runs);

/// The smallest rectangle around the ones: whole numbers; all 0 where there are none (pycocotools says the same of
/// masks it encoded itself).
BoundingBox mask_box(RunLengthView runs);

enum class Merge { united, intersected };

/// The union or the intersection of masks of one size; an empty RunLength for none. Throws UsageError where the sizes
/// differ.
RunLength merge_masks(std::span<const RunLengthView> masks, Merge how);

/// Intersection over union as rleIou of pycocotools has it: -1 where the boxes around the masks overlap but the masks
/// are of different sizes, 0 where nothing overlaps.
double mask_iou(RunLengthView detection, RunLengthView truth, GroundTruth kind = GroundTruth::object);

namespace detail {

/// height * width. Throws UsageError for more than kMaxMaskPixels.
std::uint64_t mask_pixels(std::uint32_t height, std::uint32_t width);

/// Appends the counts that `encoded` stands for. Returns what is wrong where they do not add up to `pixels`, or where
/// something cannot be decoded; counts may have been appended by then. As many as characters at most.
std::optional<std::string> append_coco_counts(std::string_view encoded, std::uint64_t pixels,
                                              std::vector<std::uint32_t>& counts);

}  // namespace detail

}  // namespace libtrain::data
