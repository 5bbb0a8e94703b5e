#include <libtrain/data/coco_evaluation.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <span>
#include <stop_token>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/detail/coco_matching.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data {

namespace {

using detail::CocoMatch;
using detail::kCocoAreas;
using detail::kCocoThresholds;

constexpr std::size_t kImagesAtOnce = 32;

// The recalls at which precisions are averaged: numpy.linspace(0, 1, 101).
constexpr auto kRecalls = [] {
  std::array<double, 101> recalls{};
  for (std::size_t number = 0; number < recalls.size(); ++number) recalls[number] = static_cast<double>(number) * 0.01;
  recalls.back() = 1;
  return recalls;
}();

// numpy.spacing(1), which pycocotools adds to a divisor.
constexpr double kSpacing = 0x1p-52;

// How many objects of a category count in each area range.
using ObjectCounts = std::array<std::uint64_t, kCocoAreas>;

std::vector<ObjectCounts> count_objects(const CocoAnnotations& truth) {
  std::vector<ObjectCounts> counts(truth.categories.size());
  for (const auto& object : truth.objects.annotations) {
    if (object.crowd) continue;
    const auto outside = detail::coco_bits_outside(object.area);
    for (std::size_t area = 0; area < kCocoAreas; ++area) {
      if ((outside >> kCocoThresholds * area & 1) == 0) ++counts[object.category][area];
    }
  }
  return counts;
}

/// The matches of all images, of each category in the order of the images.
struct Matches {
  std::vector<CocoMatch> matches;
  std::vector<std::size_t> first_of_category = {0};

  std::span<CocoMatch> of_category(std::size_t category) {
    return {matches.data() + first_of_category[category], matches.data() + first_of_category[category + 1]};
  }
};

Matches match_images(const CocoAnnotations& truth, const CocoObjects& detections,
                     const CocoEvaluationOptions& options) {
  const std::size_t images = truth.images.size();
  std::vector<CocoMatch> of_images(detections.annotations.size());
  std::vector<std::size_t> counts(images);
  detail::run_concurrently((images + kImagesAtOnce - 1) / kImagesAtOnce, static_cast<std::size_t>(options.threads),
                           [&](std::size_t task, const std::stop_token&) {
                             detail::CocoMatcher matcher{truth, detections, options.type};
                             const std::size_t end = std::min(images, (task + 1) * kImagesAtOnce);
                             for (std::size_t image = task * kImagesAtOnce; image < end; ++image) {
                               const auto first = detections.first_of_image[image];
                               const auto size = detections.first_of_image[image + 1] - first;
                               counts[image] = matcher.match(image, std::span{of_images}.subspan(first, size));
                             }
                           });
  const auto for_each_match = [&](const auto& visit) {
    for (std::size_t image = 0; image < images; ++image) {
      const CocoMatch* const first = of_images.data() + detections.first_of_image[image];
      std::for_each(first, first + counts[image], visit);
    }
  };
  Matches result;
  result.first_of_category.resize(truth.categories.size() + 1);
  for_each_match([&](const CocoMatch& match) { ++result.first_of_category[match.category + std::size_t{1}]; });
  for (std::size_t category = 0; category < truth.categories.size(); ++category) {
    result.first_of_category[category + 1] += result.first_of_category[category];
  }
  result.matches.resize(result.first_of_category.back());
  std::vector<std::size_t> next = result.first_of_category;
  for_each_match([&](const CocoMatch& match) { result.matches[next[match.category]++] = match; });
  return result;
}

/// The numbers of one category.
class CategoryEvaluator {
 public:
  /// Sorts the matches by score.
  CocoStats evaluate(std::span<CocoMatch> matches, const ObjectCounts& objects) {
    CocoStats stats;
    stats.fill(-1);
    if (objects[0] == 0) return stats;  // there is none in the other ranges either
    std::stable_sort(matches.begin(), matches.end(),
                     [](const CocoMatch& a, const CocoMatch& b) { return a.score > b.score; });
    for (std::size_t area = 0; area < kCocoAreas; ++area) {
      if (objects[area] == 0) continue;
      find_first_ranks(objects[area]);
      std::array<double, kCocoThresholds> precisions{};
      for (std::size_t threshold = 0; threshold < kCocoThresholds; ++threshold) {
        precisions[threshold] = average_precision(matches, kCocoThresholds * area + threshold);
      }
      stats[area == 0 ? 0 : 2 + area] = mean(precisions);
      stats[8 + area] = recall(matches, area, objects[area], detail::kCocoMaxDetections);
      if (area > 0) continue;
      stats[1] = precisions[0];
      stats[2] = precisions[5];
      stats[6] = recall(matches, area, objects[area], 1);
      stats[7] = recall(matches, area, objects[area], 10);
    }
    return stats;
  }

 private:
  static double mean(std::span<const double> values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / static_cast<double>(values.size());
  }

  // For each of kRecalls how many objects must be found to reach it, at least one.
  void find_first_ranks(std::uint64_t objects) {
    std::uint64_t found = 1;
    for (std::size_t number = 0; number < kRecalls.size(); ++number) {
      while (static_cast<double>(found) / static_cast<double>(objects) < kRecalls[number]) ++found;
      found_at_recall_[number] = found;
    }
  }

  // The mean over kRecalls of the best precision that is reached from there on; 0 where it is not reached.
  double average_precision(std::span<const CocoMatch> matches, std::size_t bit) {
    precisions_.clear();
    std::uint64_t wrong = 0;
    for (const CocoMatch& match : matches) {
      wrong += match.wrong >> bit & 1;
      if ((match.right >> bit & 1) == 0) continue;
      const auto right = static_cast<double>(precisions_.size() + 1);
      precisions_.push_back(right / (static_cast<double>(wrong) + right + kSpacing));
    }
    for (std::size_t number = precisions_.size(); number-- > 1;) {
      precisions_[number - 1] = std::max(precisions_[number - 1], precisions_[number]);
    }
    double sum = 0;
    for (const std::uint64_t found : found_at_recall_) {
      if (found > precisions_.size()) break;
      sum += precisions_[found - 1];
    }
    return sum / static_cast<double>(kRecalls.size());
  }

  // The mean over the thresholds of the share of objects that are found with at most `detections` of an image.
  static double recall(std::span<const CocoMatch> matches, std::size_t area, std::uint64_t objects,
                       std::size_t detections) {
    constexpr detail::CocoBits thresholds = (detail::CocoBits{1} << kCocoThresholds) - 1;
    std::uint64_t found = 0;
    for (const CocoMatch& match : matches) {
      if (match.rank >= detections) continue;
      found += static_cast<std::uint64_t>(std::popcount(match.right >> kCocoThresholds * area & thresholds));
    }
    return static_cast<double>(found) / static_cast<double>(objects) / kCocoThresholds;
  }

  std::array<std::uint64_t, kRecalls.size()> found_at_recall_ = {};
  std::vector<double> precisions_;  // where each object is found
};

CocoStats mean_over_categories(const std::vector<CocoStats>& categories) {
  CocoStats means;
  for (std::size_t number = 0; number < means.size(); ++number) {
    double sum = 0;
    std::size_t count = 0;
    for (const CocoStats& stats : categories) {
      if (stats[number] < 0) continue;
      sum += stats[number];
      ++count;
    }
    means[number] = count == 0 ? -1 : sum / static_cast<double>(count);
  }
  return means;
}

void require_comparable(const CocoAnnotations& truth, const CocoObjects& detections,
                        const CocoEvaluationOptions& options) {
  if (options.threads < 1)
    throw UsageError(text("CocoEvaluationOptions::threads is ", options.threads, "; expected 1 or more."));
  if (detections.first_of_image.size() != truth.images.size() + 1) {
    throw UsageError(text("The detections are grouped for ", detections.first_of_image.size() - 1,
                          " images, but the ground truth has ", truth.images.size(),
                          ". Read or link them with this ground truth."));
  }
  const auto& objects = truth.objects.annotations;
  const auto has_mask = [](const CocoAnnotation& each) { return each.kind != CocoShape::none; };
  if (options.type == CocoIouType::masks && !objects.empty() &&
      std::none_of(objects.begin(), objects.end(), has_mask)) {
    throw EnvironmentError(
        text("None of the ", objects.size(), " annotations of the ground truth has a mask. Evaluate boxes instead."));
  }
}

}  // namespace

CocoEvaluation evaluate_coco(const CocoAnnotations& truth, const CocoObjects& detections,
                             const CocoEvaluationOptions& options) {
  require_comparable(truth, detections, options);
  Matches matches = match_images(truth, detections, options);
  const auto objects = count_objects(truth);
  CocoEvaluation result;
  result.category_stats.resize(truth.categories.size());
  detail::run_concurrently(truth.categories.size(), static_cast<std::size_t>(options.threads),
                           [&](std::size_t category, const std::stop_token&) {
                             result.category_stats[category] =
                                 CategoryEvaluator{}.evaluate(matches.of_category(category), objects[category]);
                           });
  result.stats = mean_over_categories(result.category_stats);
  return result;
}

std::string coco_summary(const CocoStats& stats) {
  struct Line {
    const char* name;
    const char* iou;
    const char* area;
    int detections;
  };
  constexpr const char* precision = "Average Precision  (AP)";
  constexpr const char* recall = "Average Recall     (AR)";
  constexpr std::array<Line, 12> lines{{{precision, "0.50:0.95", "all", 100},
                                        {precision, "0.50", "all", 100},
                                        {precision, "0.75", "all", 100},
                                        {precision, "0.50:0.95", "small", 100},
                                        {precision, "0.50:0.95", "medium", 100},
                                        {precision, "0.50:0.95", "large", 100},
                                        {recall, "0.50:0.95", "all", 1},
                                        {recall, "0.50:0.95", "all", 10},
                                        {recall, "0.50:0.95", "all", 100},
                                        {recall, "0.50:0.95", "small", 100},
                                        {recall, "0.50:0.95", "medium", 100},
                                        {recall, "0.50:0.95", "large", 100}}};
  std::string summary;
  for (std::size_t number = 0; number < lines.size(); ++number) {
    const Line& line = lines[number];
    char written[128];
    std::snprintf(written, sizeof written, " %s @[ IoU=%-9s | area=%6s | maxDets=%3d ] = %0.3f\n", line.name, line.iou,
                  line.area, line.detections, stats[number]);
    summary += written;
  }
  return summary;
}

}  // namespace libtrain::data
