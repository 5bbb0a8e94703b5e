#include <libtrain/models/mask_rcnn/detail/matching.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <libtrain/base/detail/vector_clones.hpp>
#include <libtrain/base/splitmix.hpp>
#include <libtrain/models/mask_rcnn/operators.hpp>

namespace libtrain::models::detail {

namespace {

// Boxes as five arrays, which loops over many boxes read in vectors.
struct BoxColumns {
  std::vector<float> left, top, right, bottom, area;

  explicit BoxColumns(std::size_t count) : left(count), top(count), right(count), bottom(count), area(count) {}

  void set(std::size_t k, const float* box) {
    left[k] = box[0];
    top[k] = box[1];
    right[k] = box[2];
    bottom[k] = box[3];
    area[k] = (box[2] - box[0]) * (box[3] - box[1]);
  }
};

struct BoxPointers {
  const float* left;
  const float* top;
  const float* right;
  const float* bottom;
  const float* area;

  explicit BoxPointers(const BoxColumns& boxes, std::size_t from = 0)
      : left(boxes.left.data() + from),
        top(boxes.top.data() + from),
        right(boxes.right.data() + from),
        bottom(boxes.bottom.data() + from),
        area(boxes.area.data() + from) {}
};

// In the order of torchvision's operations: the same bits, and so the same side of a threshold.
LIBTRAIN_INLINED float overlap(const float* box, float box_area, const BoxPointers& boxes, std::size_t k) {
  const float width = std::max(std::min(box[2], boxes.right[k]) - std::max(box[0], boxes.left[k]), 0.0F);
  const float height = std::max(std::min(box[3], boxes.bottom[k]) - std::max(box[1], boxes.top[k]), 0.0F);
  const float shared = width * height;
  return shared / (box_area + boxes.area[k] - shared);
}

// Marks what overlaps with the box by more than `threshold`.
LIBTRAIN_VECTOR_CLONES void suppress(const float* box, float box_area, const BoxPointers& boxes, std::size_t count,
                                     float threshold, std::int32_t* suppressed) {
  for (std::size_t k = 0; k < count; ++k) suppressed[k] |= overlap(box, box_area, boxes, k) > threshold ? 1 : 0;
}

// Keeps the larger overlap of each box, and returns the largest of all.
LIBTRAIN_VECTOR_CLONES float keep_larger(const float* truth, float area, std::int32_t number, const BoxPointers& boxes,
                                         std::size_t count, float* overlaps, std::int32_t* matches) {
  float largest = 0;
  for (std::size_t k = 0; k < count; ++k) {
    const float value = overlap(truth, area, boxes, k);
    const bool is_larger = value > overlaps[k];
    matches[k] = is_larger ? number : matches[k];
    overlaps[k] = is_larger ? value : overlaps[k];
    largest = std::max(largest, value);
  }
  return largest;
}

LIBTRAIN_VECTOR_CLONES void mark_equal(const float* truth, float area, const BoxPointers& boxes, std::size_t count,
                                       float value, std::int32_t* marks) {
  for (std::size_t k = 0; k < count; ++k) marks[k] |= overlap(truth, area, boxes, k) == value ? 1 : 0;
}

at::Tensor as_floats(const at::Tensor& boxes, const char* name) {
  TORCH_CHECK(boxes.dim() == 2 && boxes.size(1) == 4, name, " needs boxes [N, 4], but got ", boxes.sizes(), ".");
  return boxes.to(at::kFloat).contiguous();
}

// The numbers of a group's kept boxes; `order` has those of the group by falling score.
std::vector<std::int64_t> keep_of_group(const float* corners, std::span<const std::int64_t> order, float threshold) {
  BoxColumns boxes(order.size());
  for (std::size_t k = 0; k < order.size(); ++k) boxes.set(k, corners + 4 * order[k]);
  std::vector<std::int32_t> suppressed(order.size(), 0);
  std::vector<std::int64_t> kept;
  for (std::size_t k = 0; k < order.size(); ++k) {
    if (suppressed[k] != 0) continue;
    kept.push_back(order[k]);
    const float box[] = {boxes.left[k], boxes.top[k], boxes.right[k], boxes.bottom[k]};
    suppress(box, boxes.area[k], BoxPointers(boxes, k + 1), order.size() - k - 1, threshold, suppressed.data() + k + 1);
  }
  return kept;
}

}  // namespace

float rounded_down(double value) {
  const auto rounded = static_cast<float>(value);
  return static_cast<double>(rounded) > value ? std::nextafter(rounded, -std::numeric_limits<float>::infinity())
                                              : rounded;
}

at::Tensor nms_cpu(const at::Tensor& boxes, const at::Tensor& scores, const at::Tensor& groups, double threshold) {
  const at::Tensor corners = as_floats(boxes, "nms");
  const std::int64_t count = corners.size(0);
  TORCH_CHECK(scores.dim() == 1 && scores.size(0) == count && groups.dim() == 1 && groups.size(0) == count &&
                  groups.scalar_type() == at::kLong,
              "nms needs a score and a group (int64) for each of the ", count, " boxes.");
  const at::Tensor values = scores.to(at::kFloat).contiguous();
  const at::Tensor numbers = groups.contiguous();
  const auto* score = values.const_data_ptr<float>();
  const auto* group = numbers.const_data_ptr<std::int64_t>();
  const auto is_before = [score](std::int64_t a, std::int64_t b) {
    if (std::isnan(score[a]) || std::isnan(score[b])) {  // last
      return std::isnan(score[a]) == std::isnan(score[b]) ? a < b : std::isnan(score[b]);
    }
    return score[a] != score[b] ? score[a] > score[b] : a < b;
  };

  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return group[a] != group[b] ? group[a] < group[b] : is_before(a, b);
  });
  std::vector<std::span<const std::int64_t>> members;
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin + 1;
    while (end < order.size() && group[order[end]] == group[order[begin]]) ++end;
    members.push_back(std::span(order).subspan(begin, end - begin));
    begin = end;
  }

  std::vector<std::vector<std::int64_t>> kept(members.size());
  at::parallel_for(0, std::ssize(members), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto k = static_cast<std::size_t>(begin); k < static_cast<std::size_t>(end); ++k) {
      kept[k] = keep_of_group(corners.const_data_ptr<float>(), members[k], rounded_down(threshold));
    }
  });
  std::vector<std::int64_t> all;
  for (const auto& of_group : kept) all.insert(all.end(), of_group.begin(), of_group.end());
  std::sort(all.begin(), all.end(), is_before);
  at::Tensor result = at::empty({std::ssize(all)}, at::kLong);
  std::copy(all.begin(), all.end(), result.mutable_data_ptr<std::int64_t>());
  return result;
}

at::Tensor match_boxes_cpu(const at::Tensor& truth, const at::Tensor& boxes, double at_least, double below,
                           bool keep_best) {
  const at::Tensor true_corners = as_floats(truth, "match_boxes");
  const at::Tensor corners = as_floats(boxes, "match_boxes");
  const auto count = static_cast<std::size_t>(corners.size(0));
  BoxColumns columns(count);
  for (std::size_t k = 0; k < count; ++k) columns.set(k, corners.const_data_ptr<float>() + 4 * k);

  // No overlap is below 0: the first true box is the match of boxes that overlap with none.
  std::vector<float> overlaps(count, -1.0F);
  std::vector<std::int32_t> matches(count, 0);
  std::vector<std::int32_t> is_best(keep_best ? count : 0, 0);
  const float* true_box = true_corners.const_data_ptr<float>();
  for (std::int32_t number = 0; number < static_cast<std::int32_t>(true_corners.size(0)); ++number, true_box += 4) {
    const float area = (true_box[2] - true_box[0]) * (true_box[3] - true_box[1]);
    const float largest =
        keep_larger(true_box, area, number, BoxPointers(columns), count, overlaps.data(), matches.data());
    if (keep_best && largest > 0) mark_equal(true_box, area, BoxPointers(columns), count, largest, is_best.data());
  }

  // In float32, as in torchvision, where an overlap of 7/10 is at least 0.7.
  const auto least = static_cast<float>(at_least);
  const auto bound = static_cast<float>(below);
  at::Tensor result = at::empty({corners.size(0)}, at::kLong);
  auto* numbers = result.mutable_data_ptr<std::int64_t>();
  for (std::size_t k = 0; k < count; ++k) {
    const float value = overlaps[k];
    if (value >= least || (keep_best && is_best[k] != 0)) {
      numbers[k] = matches[k];
    } else {
      numbers[k] = value < bound ? kBackground : kBetween;
    }
  }
  return result;
}

at::Tensor sample_labels_cpu(const at::Tensor& labels, std::int64_t count, double positive_fraction,
                             std::int64_t seed) {
  TORCH_CHECK(labels.dim() == 1 && labels.scalar_type() == at::kLong, "sample_labels needs labels int64 [N].");
  TORCH_CHECK(count >= 0 && positive_fraction >= 0 && positive_fraction <= 1,
              "sample_labels needs a count of at least 0 and a fraction from 0 to 1, but got ", count, " and ",
              positive_fraction, ".");
  const at::Tensor values = labels.contiguous();
  using Candidate = std::pair<std::uint64_t, std::int64_t>;  // how it is preferred, and its number
  std::vector<Candidate> positive, negative;
  for (std::int64_t k = 0; k < values.size(0); ++k) {
    const std::int64_t label = values.const_data_ptr<std::int64_t>()[k];
    if (label < 0) continue;
    const auto number = static_cast<std::uint64_t>(seed) + static_cast<std::uint64_t>(k);
    (label > 0 ? positive : negative).emplace_back(libtrain::detail::mix_bits(number), k);
  }
  std::vector<std::int64_t> chosen;
  const auto choose = [&chosen](std::vector<Candidate>& candidates, std::int64_t wanted) {
    const auto taken = std::min(wanted, std::ssize(candidates));
    if (taken < std::ssize(candidates)) {
      std::nth_element(candidates.begin(), candidates.begin() + taken, candidates.end());
    }
    for (std::int64_t k = 0; k < taken; ++k) chosen.push_back(candidates[static_cast<std::size_t>(k)].second);
    return taken;
  };
  const auto most_positive = static_cast<std::int64_t>(static_cast<double>(count) * positive_fraction);
  choose(negative, count - choose(positive, most_positive));
  std::sort(chosen.begin(), chosen.end());
  at::Tensor result = at::empty({std::ssize(chosen)}, at::kLong);
  std::copy(chosen.begin(), chosen.end(), result.mutable_data_ptr<std::int64_t>());
  return result;
}

}  // namespace libtrain::models::detail
