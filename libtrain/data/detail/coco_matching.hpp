#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <libtrain/data/formats/coco.hpp>
#include <libtrain/data/formats/run_length.hpp>

namespace libtrain::data::detail {

inline constexpr std::size_t kCocoThresholds = 10;
inline constexpr std::size_t kCocoAreas = 4;
inline constexpr std::size_t kCocoMaxDetections = 100;  // of an image and category

/// The least IoU of a match: numpy.linspace(0.5, 0.95, 10), whose steps are not all the nearest doubles.
inline constexpr auto kCocoIous = [] {
  std::array<double, kCocoThresholds> ious{};
  const double step = (0.95 - 0.5) / 9;
  for (std::size_t number = 0; number < kCocoThresholds; ++number)
    ious[number] = static_cast<double>(number) * step + 0.5;
  ious.back() = 0.95;
  return ious;
}();

/// One bit for each area range (all, small, medium, large) and threshold: kCocoThresholds * area + threshold.
using CocoBits = std::uint64_t;
inline constexpr CocoBits kAllCocoBits = (CocoBits{1} << kCocoAreas * kCocoThresholds) - 1;

/// The area ranges, with all their thresholds, that an area is not in.
CocoBits coco_bits_outside(double area);

/// What became of a detection. One that has neither bit is ignored.
struct CocoMatch {
  double score = 0;
  CocoBits right = 0;
  CocoBits wrong = 0;
  std::uint32_t category = 0;
  std::uint32_t rank = 0;  ///< how many detections of its image and category come before it
};

/// Matches the detections of images with the ground truth, one image after the other. Used by one thread at a time.
class CocoMatcher {
 public:
  /// The arguments must outlive the matcher.
  CocoMatcher(const CocoAnnotations& truth, const CocoObjects& detections, CocoIouType type)
      : truth_(truth), detections_(detections), type_(type) {}

  /// Writes the matches of the image's detections that count, ordered by category and rank, to the front of `to`, which
  /// has room for all its detections, and returns how many they are. Throws EnvironmentError that names the annotation
  /// for a mask that cannot be made.
  std::size_t match(std::size_t image, std::span<CocoMatch> to);

 private:
  using Objects = std::span<const CocoAnnotation* const>;

  struct Mask {
    RunLength made = {};  // of polygons; otherwise `runs` are those of the file
    RunLengthView runs = {};
    BoundingBox box = {};
    std::uint64_t area = 0;
  };

  // An object that a detection overlaps from the least threshold on.
  struct Candidate {
    double iou = 0;
    std::size_t object = 0;
  };

  void match_category(Objects detections, Objects objects, const CocoImage& image, CocoMatch* to);
  CocoMatch match_detection(const CocoAnnotation& detection, Objects objects);
  void find_candidates(std::size_t detection, Objects detections, Objects objects);
  void make_masks(const CocoObjects& all, Objects objects, const CocoImage& image, std::vector<Mask>& masks);

  const CocoAnnotations& truth_;
  const CocoObjects& detections_;
  const CocoIouType type_;
  // Of the current image.
  std::vector<const CocoAnnotation*> image_detections_;
  std::vector<const CocoAnnotation*> image_objects_;
  // Of the current category.
  std::vector<CocoBits> ignored_;  // of each object: the area ranges in which it is not counted
  std::vector<CocoBits> taken_;    // of each object
  std::vector<Mask> detection_masks_;
  std::vector<Mask> object_masks_;
  std::vector<Candidate> candidates_;  // of the current detection, the best first
};

}  // namespace libtrain::data::detail
