#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

// Norms for LARS and LAMB, in which the norms of a tensor's weights and gradients determine the length of a step.

namespace libtrain::optim::detail {

/// The Euclidean norm of a tensor for which is_flat() is true; its bits depend only on the values in memory order.
double norm_of_flat(const at::Tensor& flat);

/// The Euclidean norm of any tensor: a tensor without dimensions, in float32 or float64, on the tensor's device, so
/// that the host need not wait for a GPU.
at::Tensor norm_of(const at::Tensor& tensor);

/// `ratio` if both norms are above 0, otherwise 1: weights of 0 would never change, and 0 / 0 is not a ratio.
double ratio_or_one(double ratio, double left_norm, double right_norm);
at::Tensor ratio_or_one(const at::Tensor& ratio, const at::Tensor& left_norm, const at::Tensor& right_norm);

/// The dtype of a device's norms: float32, or float64 for float64.
at::ScalarType norm_type(at::ScalarType type);

/// The norms of tensors of one device and dtype, as one vector in norm_type(); one multi-tensor operation.
at::Tensor norms_of(const std::vector<at::Tensor>& tensors);

/// The tensors of `list` for which `chosen` is true.
std::vector<at::Tensor> select(const std::vector<at::Tensor>& list, const std::vector<bool>& chosen);

/// A factor for each tensor of a list: the next of the vector `chosen_factors` where `chosen` is true, otherwise
/// `other`.
std::vector<at::Tensor> factors_of(const std::vector<bool>& chosen, const at::Tensor& chosen_factors,
                                   const at::Tensor& other);

}  // namespace libtrain::optim::detail
