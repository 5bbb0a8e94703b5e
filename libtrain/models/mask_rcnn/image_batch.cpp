#include <libtrain/models/mask_rcnn/image_batch.hpp>

#include <algorithm>
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/zeros.h>

namespace libtrain::models {

namespace {

constexpr std::int64_t kMultiple = 32;  // the coarsest stride of a backbone

std::int64_t rounded_up(std::int64_t size) {
  return (size + kMultiple - 1) / kMultiple * kMultiple;
}

at::Tensor prepare(const at::Tensor& image, const ImageBatchOptions& options) {
  TORCH_CHECK(image.dim() == 3 && image.size(0) == 3 && image.is_floating_point(),
              "make_image_batch needs float images [3, h, w], but got ", image.sizes(), " of ", image.scalar_type(),
              ".");
  const auto as_channels = [&](const std::array<double, 3>& values) {
    return at::tensor(at::ArrayRef<double>(values), image.options()).view({3, 1, 1});
  };
  const auto height = static_cast<double>(image.size(1));
  const auto width = static_cast<double>(image.size(2));
  const double scale = std::min(static_cast<double>(options.min_size) / std::min(height, width),
                                static_cast<double>(options.max_size) / std::max(height, width));
  const auto scaled = [scale](double side) { return static_cast<std::int64_t>(std::floor(side * scale)); };
  const at::Tensor normalised = (image - as_channels(options.mean)) / as_channels(options.std);
  return at::upsample_bilinear2d(normalised.unsqueeze(0), {scaled(height), scaled(width)}, /*align_corners=*/false)
      .squeeze(0);
}

// Calls paste(mask, probabilities, image's rows and columns that they fill) for each mask that has a part in the image.
template <typename Paste>
void for_each_mask(const at::Tensor& masks, const at::Tensor& boxes, const ImageSize& image, const Paste& paste) {
  TORCH_CHECK(masks.dim() == 3 && boxes.dim() == 2 && boxes.size(0) == masks.size(0) && boxes.size(1) == 4,
              "paste_masks needs masks [N, M, M] and boxes [N, 4], but got ", masks.sizes(), " and ", boxes.sizes(),
              ".");
  // A border of one cell, and boxes larger by as much: a mask fades out at the edge of its box.
  const at::Tensor padded = at::constant_pad_nd(masks.to(at::kFloat), {1, 1, 1, 1});
  const double scale = static_cast<double>(masks.size(2) + 2) / static_cast<double>(masks.size(2));
  const at::Tensor half_width = (boxes.select(1, 2) - boxes.select(1, 0)) * 0.5;
  const at::Tensor half_height = (boxes.select(1, 3) - boxes.select(1, 1)) * 0.5;
  const at::Tensor x = (boxes.select(1, 2) + boxes.select(1, 0)) * 0.5;
  const at::Tensor y = (boxes.select(1, 3) + boxes.select(1, 1)) * 0.5;
  const at::Tensor wide = half_width * scale;
  const at::Tensor high = half_height * scale;
  const at::Tensor corners = at::stack({x - wide, y - high, x + wide, y + high}, 1).to(at::kLong).cpu();
  const auto* corner = corners.const_data_ptr<std::int64_t>();
  for (std::int64_t k = 0; k < masks.size(0); ++k, corner += 4) {
    const std::int64_t width = std::max<std::int64_t>(corner[2] - corner[0] + 1, 1);
    const std::int64_t height = std::max<std::int64_t>(corner[3] - corner[1] + 1, 1);
    const std::int64_t left = std::max<std::int64_t>(corner[0], 0);
    const std::int64_t top = std::max<std::int64_t>(corner[1], 0);
    const std::int64_t right = std::min(corner[2] + 1, image.width);
    const std::int64_t bottom = std::min(corner[3] + 1, image.height);
    if (right <= left || bottom <= top) continue;
    const at::Tensor enlarged =
        at::upsample_bilinear2d(padded.narrow(0, k, 1).unsqueeze(0), {height, width}, /*align_corners=*/false)[0][0];
    paste(k, enlarged.slice(0, top - corner[1], bottom - corner[1]).slice(1, left - corner[0], right - corner[0]),
          [&](const at::Tensor& result) { return result[k].slice(0, top, bottom).slice(1, left, right); });
  }
}

}  // namespace

ImageBatch make_image_batch(const std::vector<at::Tensor>& images, const ImageBatchOptions& options) {
  std::vector<at::Tensor> prepared;
  ImageBatch batch;
  ImageSize largest;
  for (const auto& image : images) {
    prepared.push_back(prepare(image, options));
    batch.sizes.push_back({prepared.back().size(1), prepared.back().size(2)});
    largest = {std::max(largest.height, batch.sizes.back().height), std::max(largest.width, batch.sizes.back().width)};
  }
  TORCH_CHECK(!images.empty(), "make_image_batch was given no images.");
  batch.images = at::zeros({std::ssize(images), 3, rounded_up(largest.height), rounded_up(largest.width)},
                           prepared.front().options());
  for (std::size_t k = 0; k < prepared.size(); ++k) {
    batch.images[static_cast<std::int64_t>(k)]
        .slice(1, 0, batch.sizes[k].height)
        .slice(2, 0, batch.sizes[k].width)
        .copy_(prepared[k]);
  }
  return batch;
}

void resize_boxes(Detections& detections, const ImageSize& from, const ImageSize& to) {
  // In float32, as torchvision divides the sizes.
  const float x = static_cast<float>(to.width) / static_cast<float>(from.width);
  const float y = static_cast<float>(to.height) / static_cast<float>(from.height);
  detections.boxes = detections.boxes * at::tensor({x, y, x, y}, detections.boxes.options());
}

at::Tensor paste_masks(const at::Tensor& masks, const at::Tensor& boxes, const ImageSize& image) {
  at::Tensor result = at::zeros({masks.size(0), image.height, image.width}, masks.options().dtype(at::kFloat));
  for_each_mask(masks, boxes, image,
                [&](std::int64_t, const at::Tensor& values, const auto& place) { place(result).copy_(values); });
  return result;
}

at::Tensor paste_masks(const at::Tensor& masks, const at::Tensor& boxes, const ImageSize& image, double threshold) {
  at::Tensor result = at::zeros({masks.size(0), image.height, image.width}, masks.options().dtype(at::kByte));
  for_each_mask(masks, boxes, image, [&](std::int64_t, const at::Tensor& values, const auto& place) {
    place(result).copy_(values.ge(threshold));
  });
  return result;
}

}  // namespace libtrain::models
