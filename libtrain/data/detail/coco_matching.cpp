#include <libtrain/data/detail/coco_matching.hpp>

#include <algorithm>
#include <tuple>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/detail/polygon_mask.hpp>

namespace libtrain::data::detail {

namespace {

// In square pixels, both ends included.
struct AreaRange {
  double least = 0;
  double most = 0;
};
constexpr std::array<AreaRange, kCocoAreas> kAreas{{{0, 1e10}, {0, 32 * 32}, {32 * 32, 96 * 96}, {96 * 96, 1e10}}};

constexpr CocoBits kThresholdsOfOneArea = (CocoBits{1} << kCocoThresholds) - 1;

// A threshold's bits in all area ranges.
constexpr CocoBits kInAllAreas = kAllCocoBits / kThresholdsOfOneArea;

CocoBits bits_up_to(double iou) {
  const auto reached = std::upper_bound(kCocoIous.begin(), kCocoIous.end(), iou) - kCocoIous.begin();
  return ((CocoBits{1} << reached) - 1) * kInAllAreas;
}

// The ones of a mask in order.
class Ones {
 public:
  explicit Ones(std::span<const std::uint32_t> counts) : counts_(counts) { next(); }

  std::uint64_t begin() const { return begin_; }
  std::uint64_t end() const { return end_; }

  // Returns false after the last run.
  bool next() {
    if (counts_.size() < 2) return false;
    begin_ = end_ + counts_[0];
    end_ = begin_ + counts_[1];
    counts_ = counts_.subspan(2);
    return true;
  }

 private:
  std::span<const std::uint32_t> counts_;
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
};

std::uint64_t common_pixels(RunLengthView a_runs, RunLengthView b_runs) {
  Ones a{a_runs.counts};
  Ones b{b_runs.counts};
  std::uint64_t pixels = 0;
  for (bool more = true; more;) {
    const std::uint64_t begin = std::max(a.begin(), b.begin());
    const std::uint64_t end = std::min(a.end(), b.end());
    if (end > begin) pixels += end - begin;
    more = a.end() < b.end() ? a.next() : b.next();
  }
  return pixels;
}

// Each category together, in the order of the file.
void sort_by_category(std::span<const CocoAnnotation> annotations, std::vector<const CocoAnnotation*>& sorted) {
  sorted.clear();
  for (const auto& annotation : annotations) sorted.push_back(&annotation);
  std::sort(sorted.begin(), sorted.end(),
            [](const auto* a, const auto* b) { return std::tie(a->category, a) < std::tie(b->category, b); });
}

void sort_by_category_and_score(std::span<const CocoAnnotation> annotations,
                                std::vector<const CocoAnnotation*>& sorted) {
  sorted.clear();
  for (const auto& annotation : annotations) sorted.push_back(&annotation);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) {
    return std::tie(a->category, b->score, a) < std::tie(b->category, a->score, b);
  });
}

// The part of `sorted` that has the category of its first element.
std::span<const CocoAnnotation* const> first_category(std::span<const CocoAnnotation* const> sorted) {
  const auto category = sorted.front()->category;
  const auto end =
      std::find_if(sorted.begin(), sorted.end(), [&](const auto* each) { return each->category != category; });
  return {sorted.begin(), end};
}

}  // namespace

CocoBits coco_bits_outside(double area) {
  CocoBits outside = 0;
  for (std::size_t number = 0; number < kCocoAreas; ++number) {
    const bool is_outside = area < kAreas[number].least || area > kAreas[number].most;
    if (is_outside) outside |= kThresholdsOfOneArea << kCocoThresholds * number;
  }
  return outside;
}

std::size_t CocoMatcher::match(std::size_t image, std::span<CocoMatch> to) {
  sort_by_category_and_score(detections_.of_image(image), image_detections_);
  sort_by_category(truth_.objects.of_image(image), image_objects_);
  Objects objects{image_objects_};
  std::size_t matches = 0;
  for (Objects left{image_detections_}; !left.empty();) {
    const Objects detections = first_category(left);
    left = left.subspan(detections.size());
    const auto category = detections.front()->category;
    while (!objects.empty() && objects.front()->category < category) objects = objects.subspan(1);
    const bool has_objects = !objects.empty() && objects.front()->category == category;
    const auto counted = detections.first(std::min(detections.size(), kCocoMaxDetections));
    match_category(counted, has_objects ? first_category(objects) : Objects{}, truth_.images[image], &to[matches]);
    matches += counted.size();
  }
  return matches;
}

void CocoMatcher::match_category(Objects detections, Objects objects, const CocoImage& image, CocoMatch* to) {
  ignored_.clear();
  for (const auto* object : objects) {
    ignored_.push_back(object->crowd ? kAllCocoBits : coco_bits_outside(object->area));
  }
  taken_.assign(objects.size(), 0);
  if (type_ == CocoIouType::masks && !objects.empty()) {
    make_masks(detections_, detections, image, detection_masks_);
    make_masks(truth_.objects, objects, image, object_masks_);
  }
  for (std::size_t number = 0; number < detections.size(); ++number) {
    find_candidates(number, detections, objects);
    to[number] = match_detection(*detections[number], objects);
    to[number].rank = static_cast<std::uint32_t>(number);
  }
}

// pycocotools goes through the objects for each threshold and area range: those that count come first, an object is
// taken if it overlaps at least as much as the best before, and the search ends before the ignored objects if one has
// been found. This is the same for all thresholds and area ranges at once, each of which is a bit.
CocoMatch CocoMatcher::match_detection(const CocoAnnotation& detection, Objects objects) {
  CocoBits open = kAllCocoBits;
  CocoBits matched = 0;
  CocoBits ignored = 0;
  const auto take = [&](const Candidate& candidate, CocoBits allowed) {
    const CocoAnnotation& object = *objects[candidate.object];
    CocoBits taken = open & allowed & bits_up_to(candidate.iou);
    if (!object.crowd) taken &= ~taken_[candidate.object];
    taken_[candidate.object] |= taken;
    open &= ~taken;
    ignored |= taken & ignored_[candidate.object];
    if (object.id != 0) matched |= taken;  // pycocotools stores the id, with 0 for no match
  };
  for (const auto& candidate : candidates_) take(candidate, ~ignored_[candidate.object]);
  for (const auto& candidate : candidates_) take(candidate, ignored_[candidate.object]);
  ignored |= ~matched & coco_bits_outside(detection.area);
  return {.score = detection.score,
          .right = matched & ~ignored,
          .wrong = kAllCocoBits & ~matched & ~ignored,
          .category = detection.category};
}

void CocoMatcher::find_candidates(std::size_t detection, Objects detections, Objects objects) {
  candidates_.clear();
  for (std::size_t number = 0; number < objects.size(); ++number) {
    const auto kind = objects[number]->crowd ? GroundTruth::crowd : GroundTruth::object;
    double iou = 0;
    if (type_ == CocoIouType::boxes) {
      iou = box_iou(detections[detection]->box, objects[number]->box, kind);
    } else {
      const Mask& a = detection_masks_[detection];
      const Mask& b = object_masks_[number];
      const bool one_size = a.runs.height == b.runs.height && a.runs.width == b.runs.width;
      if (!one_size || !(box_iou(a.box, b.box, kind) > 0)) continue;
      const std::uint64_t common = common_pixels(a.runs, b.runs);
      if (common == 0) continue;
      const std::uint64_t divisor = kind == GroundTruth::crowd ? a.area : a.area + b.area - common;
      iou = static_cast<double>(common) / static_cast<double>(divisor);
    }
    if (iou >= kCocoIous.front()) candidates_.push_back({.iou = iou, .object = number});
  }
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.iou, a.object) > std::tie(b.iou, b.object);
  });
}

void CocoMatcher::make_masks(const CocoObjects& all, Objects objects, const CocoImage& image,
                             std::vector<Mask>& masks) {
  masks.clear();
  for (const auto* object : objects) {
    Mask& mask = masks.emplace_back();
    if (object->kind == CocoShape::run_length) {
      mask.runs = all.shapes.run_length(object->shape);
    } else {
      const auto height = static_cast<std::uint32_t>(image.height);
      const auto width = static_cast<std::uint32_t>(image.width);
      try {
        if (object->kind == CocoShape::none && &all == &detections_) {
          const auto& [x, y, w, h] = object->box;
          mask.made = polygon_mask(std::array{x, y, x, y + h, x + w, y + h, x + w, y}, height, width);
        } else {
          mask.made = all.mask(*object, height, width);
        }
      } catch (const Error& error) {
        throw EnvironmentError(text(&all == &detections_ ? "Result " : "Annotation ", object->id, " of image ",
                                    image.id, " has no usable mask: ", error.what()));
      }
      mask.runs = mask.made;
    }
    mask.box = mask_box(mask.runs);
    mask.area = mask_area(mask.runs);
  }
}

}  // namespace libtrain::data::detail
