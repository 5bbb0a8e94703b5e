#include <libtrain/models/mask_rcnn/detail/boxes.hpp>

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/log.h>
#include <ATen/ops/smooth_l1_loss.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

namespace libtrain::models::detail {

namespace {

struct CentredBoxes {
  at::Tensor x, y, width, height;

  explicit CentredBoxes(const at::Tensor& boxes)
      : width(boxes.select(-1, 2) - boxes.select(-1, 0)), height(boxes.select(-1, 3) - boxes.select(-1, 1)) {
    x = boxes.select(-1, 0) + 0.5 * width;
    y = boxes.select(-1, 1) + 0.5 * height;
  }
};

}  // namespace

at::Tensor widened(const at::Tensor& values) {
  return at::isReducedFloatingType(values.scalar_type()) ? values.to(at::kFloat) : values;
}

at::Tensor BoxCoding::encode(const at::Tensor& boxes, const at::Tensor& references) const {
  const CentredBoxes box(boxes);
  const CentredBoxes reference(references);
  return at::stack(
      {weights[0] * (box.x - reference.x) / reference.width, weights[1] * (box.y - reference.y) / reference.height,
       weights[2] * at::log(box.width / reference.width), weights[3] * at::log(box.height / reference.height)},
      -1);
}

at::Tensor BoxCoding::decode(const at::Tensor& corrections, const at::Tensor& references) const {
  const double largest = std::log(1000.0 / 16);
  const CentredBoxes reference(references);
  const at::Tensor x = corrections.select(-1, 0) / weights[0] * reference.width + reference.x;
  const at::Tensor y = corrections.select(-1, 1) / weights[1] * reference.height + reference.y;
  const at::Tensor half_width =
      0.5 * (at::exp((corrections.select(-1, 2) / weights[2]).clamp_max(largest)) * reference.width);
  const at::Tensor half_height =
      0.5 * (at::exp((corrections.select(-1, 3) / weights[3]).clamp_max(largest)) * reference.height);
  return at::stack({x - half_width, y - half_height, x + half_width, y + half_height}, -1);
}

at::Tensor clip_boxes(const at::Tensor& boxes, const ImageSize& image) {
  const at::Tensor x = boxes.slice(-1, 0, 4, 2).clamp(0, image.width);
  const at::Tensor y = boxes.slice(-1, 1, 4, 2).clamp(0, image.height);
  return at::stack({x, y}, -1).flatten(-2);
}

at::Tensor are_as_large_as(const at::Tensor& boxes, double side) {
  return (boxes.select(1, 2) - boxes.select(1, 0))
      .ge(side)
      .logical_and((boxes.select(1, 3) - boxes.select(1, 1)).ge(side));
}

std::vector<at::Tensor> make_anchors(const AnchorOptions& options, const std::vector<at::Tensor>& maps,
                                     const ImageSize& padded) {
  std::vector<at::Tensor> anchors;
  for (std::size_t level = 0; level < maps.size(); ++level) {
    std::vector<float> corners;
    for (const double ratio : options.ratios) {
      // In float32 and rounded half to even, as torchvision's generate_anchors.
      const float height_ratio = std::sqrt(static_cast<float>(ratio));
      const float size = static_cast<float>(options.sizes[level]);
      const float width = std::nearbyint((1 / height_ratio * size) / 2);
      const float height = std::nearbyint((height_ratio * size) / 2);
      corners.insert(corners.end(), {-width, -height, width, height});
    }
    const auto on_device = maps[level].options().dtype(at::kFloat).memory_format(std::nullopt);
    const at::Tensor cell = at::tensor(corners, at::kFloat).view({1, 1, -1, 4}).to(on_device.device());
    const std::int64_t rows = maps[level].size(2);
    const std::int64_t columns = maps[level].size(3);
    const at::Tensor y = at::arange(rows, on_device) * (padded.height / rows);
    const at::Tensor x = at::arange(columns, on_device) * (padded.width / columns);
    const at::Tensor grid_x = x.view({1, columns}).expand({rows, columns});
    const at::Tensor grid_y = y.view({rows, 1}).expand({rows, columns});
    const at::Tensor shifts = at::stack({grid_x, grid_y, grid_x, grid_y}, -1).unsqueeze(2);
    anchors.push_back((shifts + cell).view({-1, 4}));
  }
  return anchors;
}

at::Tensor box_loss_sum(const at::Tensor& corrections, const at::Tensor& wanted) {
  return at::smooth_l1_loss(corrections, wanted, at::Reduction::Sum, 1.0 / 9);
}

}  // namespace libtrain::models::detail
