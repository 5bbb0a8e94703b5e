#pragma once

#include <cstdint>

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

namespace libtrain::models::detail {

/// Throws c10::Error for shapes and types that do not fit.
void check_roi_align(at::TensorList maps, const at::Tensor& boxes, const at::Tensor& images, const at::Tensor& levels,
                     at::ArrayRef<double> scales, std::int64_t output_size);
void check_mask_targets(const at::Tensor& masks, const at::Tensor& boxes, const at::Tensor& matches);

/// roi_align() on the CPU, with the map of each box given: int64 [K].
at::Tensor roi_align_cpu(at::TensorList maps, const at::Tensor& boxes, const at::Tensor& images,
                         const at::Tensor& levels, at::ArrayRef<double> scales, std::int64_t output_size,
                         std::int64_t sampling_ratio);

/// The gradient of each map, as `maps` in shape, type and memory format, from that of the output.
std::vector<at::Tensor> roi_align_backward_cpu(const at::Tensor& gradient, at::TensorList maps, const at::Tensor& boxes,
                                               const at::Tensor& images, const at::Tensor& levels,
                                               at::ArrayRef<double> scales, std::int64_t output_size,
                                               std::int64_t sampling_ratio);

at::Tensor mask_targets_cpu(const at::Tensor& masks, const at::Tensor& boxes, const at::Tensor& matches,
                            std::int64_t output_size);

}  // namespace libtrain::models::detail
