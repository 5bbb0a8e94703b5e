#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include <libtrain/data/formats/coco.hpp>

namespace libtrain::data {

struct CocoEvaluationOptions {
  CocoIouType type = CocoIouType::boxes;
  int threads = 1;
};

/// The numbers that COCOeval.summarize() of pycocotools prints, in its order; -1 for one without ground truth.
///
///     0      average precision (AP): mean over the IoU thresholds 0.50, 0.55, ... 0.95
///     1, 2   AP at IoU 0.50, and at 0.75
///     3-5    AP of small (area up to 32^2 pixels), medium and large (from 96^2 on) objects
///     6-8    average recall with at most 1, 10 and 100 detections per image and category
///     9-11   average recall of small, medium and large objects
using CocoStats = std::array<double, 12>;

struct CocoEvaluation {
  CocoStats stats = {};                        ///< of each number the mean over the categories that have it
  std::vector<CocoStats> category_stats = {};  ///< for each of CocoAnnotations::categories
};

/// Evaluates detections by the rules of COCO (https://cocodataset.org/#detection-eval) exactly as COCOeval of
/// pycocotools 2.0.11 does with its default parameters. In particular:
/// - Of each image and category the 100 detections of the highest scores count. Among equal scores the order of
///   `detections` decides, and between images that of the image ids.
/// - A detection takes the free object of its category that overlaps it most, from the IoU threshold on; of equal
///   overlaps the last in the file. Only if there is none does it take a crowd, or an object outside of the area range;
///   such a detection counts neither as right nor as wrong. Any number of detections may take the same crowd.
/// - Detections that take an object with the id 0 count as wrong.
/// - Masks of different sizes do not overlap. Without a mask, the box is a detection's mask.
///
/// `truth` should be read with CocoUse::evaluation: otherwise objects without area are missing. `detections` are those
/// of read_coco_results() or link_coco_results() for the same `truth`. The result does not depend on the threads.
/// Throws UsageError if `detections` has another number of images or options.threads is below 1, EnvironmentError for
/// CocoIouType::masks if none of the annotations has a mask.
CocoEvaluation evaluate_coco(const CocoAnnotations& truth, const CocoObjects& detections,
                             const CocoEvaluationOptions& options = {});

/// The 12 lines that pycocotools prints.
std::string coco_summary(const CocoStats& stats);

}  // namespace libtrain::data
