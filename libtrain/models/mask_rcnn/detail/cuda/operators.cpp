#include <libtrain/models/mask_rcnn/detail/cuda/link.hpp>

#include <limits>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <libtrain/base/splitmix.hpp>
#include <libtrain/models/mask_rcnn/detail/cuda/kernels.hpp>
#include <libtrain/models/mask_rcnn/detail/matching.hpp>
#include <libtrain/models/mask_rcnn/detail/roi_align.hpp>
#include <libtrain/models/mask_rcnn/operators.hpp>

namespace libtrain::models::detail {

namespace {

MapType type_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return MapType::float32;
    case at::kDouble:
      return MapType::float64;
    case at::kBFloat16:
      return MapType::bfloat16;
    case at::kHalf:
      return MapType::float16;
    case at::kByte:
      return MapType::uint8;
    default:
      TORCH_CHECK_TYPE(false, "roi_align has no kernel for maps of ", type, ".");
  }
}

at::ScalarType sum_type(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

// In one of the two formats, which all maps then have.
at::MemoryFormat format_of(const at::Tensor& map) {
  return map.is_contiguous(at::MemoryFormat::ChannelsLast) && !map.is_contiguous() ? at::MemoryFormat::ChannelsLast
                                                                                   : at::MemoryFormat::Contiguous;
}

// The arguments of a kernel, and the tensors that they point to.
struct Call {
  DeviceCrops crops = {};
  at::Tensor boxes, images, levels;

  Call(const std::vector<at::Tensor>& maps, const at::Tensor& all_boxes, const at::Tensor& all_images,
       const at::Tensor& all_levels, at::ArrayRef<double> scales, std::int64_t output_size, std::int64_t sampling_ratio,
       at::MemoryFormat format)
      : boxes(all_boxes.to(sum_type(maps.front().scalar_type())).contiguous()),
        images(all_images.contiguous()),
        levels(all_levels.defined() ? all_levels.contiguous() : at::Tensor()) {
    TORCH_CHECK(maps.size() <= kMaxMaps, "roi_align takes up to ", kMaxMaps, " maps on a GPU, but got ", maps.size(),
                ".");
    constexpr std::int64_t kMostNumbers = std::numeric_limits<std::int32_t>::max();
    const std::int64_t numbers = all_boxes.size(0) * maps.front().size(1) * output_size * output_size;
    TORCH_CHECK(numbers <= kMostNumbers, "roi_align computes up to ", kMostNumbers, " numbers on a GPU, but got ",
                all_boxes.size(0), " boxes, which have ", numbers, ".");
    for (const auto& map : maps) {
      crops.maps[crops.map_count] = {.values = map.data_ptr(),
                                     .scale = scales[static_cast<std::size_t>(crops.map_count)],
                                     .height = map.size(2),
                                     .width = map.size(3),
                                     .image_stride = map.stride(0),
                                     .channel_stride = map.stride(1),
                                     .row_stride = map.stride(2),
                                     .column_stride = map.stride(3)};
      ++crops.map_count;
    }
    crops.boxes = boxes.const_data_ptr();
    crops.images = images.const_data_ptr<std::int64_t>();
    crops.levels = levels.defined() ? levels.const_data_ptr<std::int64_t>() : nullptr;
    crops.count = boxes.size(0);
    crops.batch = maps.front().size(0);
    crops.channels = maps.front().size(1);
    crops.size = output_size;
    crops.sampling_ratio = sampling_ratio;
    crops.channels_last = format == at::MemoryFormat::ChannelsLast;
  }
};

std::vector<at::Tensor> in_format(at::TensorList maps, at::MemoryFormat format) {
  std::vector<at::Tensor> result;
  for (const auto& map : maps) result.push_back(map.contiguous(format));
  return result;
}

at::Tensor roi_align_cuda(at::TensorList maps, const at::Tensor& boxes, const at::Tensor& images,
                          const at::Tensor& levels, at::ArrayRef<double> scales, std::int64_t output_size,
                          std::int64_t sampling_ratio) {
  check_roi_align(maps, boxes, images, levels, scales, output_size);
  const c10::DeviceGuard guard(maps[0].device());
  const auto format = format_of(maps[0]);
  const auto inputs = in_format(maps, format);
  const Call call(inputs, boxes, images, levels, scales, output_size, sampling_ratio, format);
  at::Tensor output = at::empty({call.crops.count, call.crops.channels, output_size, output_size},
                                inputs.front().options().memory_format(format));
  launch_roi_align(call.crops, type_of(inputs.front().scalar_type()), output.mutable_data_ptr(),
                   c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return output;
}

std::vector<at::Tensor> roi_align_backward_cuda(const at::Tensor& gradient, at::TensorList maps,
                                                const at::Tensor& boxes, const at::Tensor& images,
                                                const at::Tensor& levels, at::ArrayRef<double> scales,
                                                std::int64_t output_size, std::int64_t sampling_ratio) {
  check_roi_align(maps, boxes, images, levels, scales, output_size);
  const c10::DeviceGuard guard(maps[0].device());
  const auto format = format_of(maps[0]);
  std::vector<at::Tensor> gradients;
  for (const auto& map : maps) gradients.push_back(at::empty_like(map, map.options(), format));
  const at::Tensor crops = gradient.contiguous(format);
  const Call call(gradients, boxes, images, levels, scales, output_size, sampling_ratio, format);
  launch_roi_align_backward(call.crops, type_of(crops.scalar_type()), crops.const_data_ptr(),
                            c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return gradients;
}

at::Tensor mask_targets_cuda(const at::Tensor& masks, const at::Tensor& boxes, const at::Tensor& matches,
                             std::int64_t output_size) {
  check_mask_targets(masks, boxes, matches);
  const c10::DeviceGuard guard(masks.device());
  const at::Tensor map = masks.unsqueeze(1).contiguous();
  const double scale = 1;
  const Call call({map}, boxes, matches, {}, scale, output_size, /*sampling_ratio=*/0, at::MemoryFormat::Contiguous);
  at::Tensor output = at::empty({boxes.size(0), output_size, output_size}, masks.options().dtype(at::kFloat));
  launch_roi_align(call.crops, MapType::uint8, output.mutable_data_ptr(), c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return output;
}

at::Tensor nms_cuda(const at::Tensor& boxes, const at::Tensor& scores, const at::Tensor& groups, double threshold) {
  constexpr std::int64_t kMostBoxes = 200000;  // whose overlaps take 5 GB
  const std::int64_t count = boxes.size(0);
  TORCH_CHECK(boxes.dim() == 2 && boxes.size(1) == 4 && scores.size(0) == count && groups.size(0) == count,
              "nms needs boxes [N, 4], and a score and a group for each.");
  TORCH_CHECK(count <= kMostBoxes, "nms takes up to ", kMostBoxes, " boxes on a GPU, but got ", count, ".");
  const c10::DeviceGuard guard(boxes.device());
  const at::Tensor order = std::get<1>(scores.to(at::kFloat).sort(/*stable=*/true, 0, /*descending=*/true));
  const at::Tensor corners = boxes.to(at::kFloat).index_select(0, order).contiguous();
  const at::Tensor numbers = groups.index_select(0, order).contiguous();
  const at::Tensor overlaps = at::empty({count, nms_words(count)}, order.options());
  at::Tensor kept = at::empty({count}, order.options().dtype(at::kBool));
  launch_nms(corners.const_data_ptr<float>(), numbers.const_data_ptr<std::int64_t>(), count, rounded_down(threshold),
             reinterpret_cast<std::uint64_t*>(overlaps.mutable_data_ptr()), kept.mutable_data_ptr<bool>(),
             c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return order.masked_select(kept);
}

}  // namespace

void link_cuda_operators() {}

TORCH_LIBRARY_IMPL(libtrain, CUDA, library) {
  library.impl("nms", nms_cuda);
  library.impl("match_boxes", match_boxes_by_matrix);
  library.impl("sample_labels", sample_labels_by_keys);
  library.impl("mask_targets", mask_targets_cuda);
  library.impl("roi_align", roi_align_cuda);
  library.impl("roi_align_backward", roi_align_backward_cuda);
}

}  // namespace libtrain::models::detail
