#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace libtrain::models::detail {

/// The CPU's kernels of nms(), match_boxes() and sample_labels().
at::Tensor nms_cpu(const at::Tensor& boxes, const at::Tensor& scores, const at::Tensor& groups, double threshold);
at::Tensor match_boxes_cpu(const at::Tensor& truth, const at::Tensor& boxes, double at_least, double below,
                           bool keep_best);
at::Tensor sample_labels_cpu(const at::Tensor& labels, std::int64_t count, double positive_fraction, std::int64_t seed);

/// match_boxes() and sample_labels() by tensor operators alone, for other devices; memory for all pairs of boxes.
at::Tensor match_boxes_by_matrix(const at::Tensor& truth, const at::Tensor& boxes, double at_least, double below,
                                 bool keep_best);
at::Tensor sample_labels_by_keys(const at::Tensor& labels, std::int64_t count, double positive_fraction,
                                 std::int64_t seed);

/// The largest float that is not above `value`: comparing floats with it is comparing them with `value` in double.
float rounded_down(double value);

}  // namespace libtrain::models::detail
