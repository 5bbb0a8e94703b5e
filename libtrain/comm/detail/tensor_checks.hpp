#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/communicator.hpp>

namespace libtrain::detail {

/// What communicators call a dtype; empty for those that they do not take.
std::optional<DataType> data_type_of(at::ScalarType type);

/// The checks every backend makes before a tensor enters a collective. Each throws UsageError that names `call`, the
/// value and what was expected.

/// Defined, dense, contiguous and on a device the communicator takes; returns its element type.
DataType checked_type(const Communicator& communicator, const at::Tensor& tensor, std::string_view call);

/// As above for a pair of which `large` holds `times` the elements of `small`.
DataType checked_pair(const Communicator& communicator, const at::Tensor& small, const at::Tensor& large, int times,
                      std::string_view call);

/// As above for one rank's `part` and the `whole` of all ranks' parts, in which it may be the rank-th.
DataType checked_gather(const Communicator& communicator, const at::Tensor& part, const at::Tensor& whole,
                        std::string_view call);

/// As above for two tensors of equally many elements that are the same memory or do not overlap.
DataType checked_in_out(const Communicator& communicator, const at::Tensor& input, const at::Tensor& output,
                        std::string_view call);

/// As above for two tensors of one part a rank: equally many elements, a multiple of the world size, in memory of their
/// own.
DataType checked_parts(const Communicator& communicator, const at::Tensor& input, const at::Tensor& output,
                       std::string_view call);

/// How many bytes that many elements take: not less than none, and not more than there can be.
std::size_t checked_bytes(std::int64_t elements, at::ScalarType type);

/// Averages exist for floating types only.
void check_op(DataType type, ReduceOp op, std::string_view call);

/// 0 <= root < world size.
void check_root(const Communicator& communicator, int root, std::string_view call);

/// Colours of a split start at 0.
void check_color(int color);

}  // namespace libtrain::detail
