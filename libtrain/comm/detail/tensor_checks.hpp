#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/communicator.hpp>

namespace libtrain::detail {

/// The DataType of a dtype; std::nullopt if communicators do not support it.
std::optional<DataType> data_type_of(at::ScalarType type);
at::ScalarType scalar_type_of(DataType type);

/// The checks that every backend makes before a collective. Each throws a UsageError that names `call`, the value and
/// what was expected.

/// Defined, dense, contiguous and on a device that the communicator supports; returns its element type.
DataType checked_type(const Communicator& communicator, const at::Tensor& tensor, std::string_view call);

/// As above for a pair of which `large` holds `times` the elements of `small`.
DataType checked_pair(const Communicator& communicator, const at::Tensor& small, const at::Tensor& large, int times,
                      std::string_view call);

/// As above for one rank's `part` and the `whole` of all ranks' parts; `part` may be the rank-th part of `whole`.
DataType checked_gather(const Communicator& communicator, const at::Tensor& part, const at::Tensor& whole,
                        std::string_view call);

/// As above for two tensors with the same number of elements that are the same memory or do not overlap.
DataType checked_in_out(const Communicator& communicator, const at::Tensor& input, const at::Tensor& output,
                        std::string_view call);

/// As above for two tensors with one part for each rank: the same number of elements, a multiple of the world size, and
/// no overlap.
DataType checked_parts(const Communicator& communicator, const at::Tensor& input, const at::Tensor& output,
                       std::string_view call);

/// The size of `elements` elements in bytes. Throws if `elements` is negative or the size is too large.
std::size_t checked_bytes(std::int64_t elements, at::ScalarType type);

/// Averages are supported for floating types only.
void check_op(DataType type, ReduceOp op, std::string_view call);

/// 0 <= root < world size.
void check_root(const Communicator& communicator, int root, std::string_view call);

/// 0 <= color.
void check_color(int color);

}  // namespace libtrain::detail
