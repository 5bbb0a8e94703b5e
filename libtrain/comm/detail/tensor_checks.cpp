#include <libtrain/comm/detail/tensor_checks.hpp>

#include <limits>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/bytes.hpp>

namespace libtrain::detail {

std::optional<DataType> data_type_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DataType::float32;
    case at::kDouble:
      return DataType::float64;
    case at::kHalf:
      return DataType::float16;
    case at::kBFloat16:
      return DataType::bfloat16;
    case at::kInt:
      return DataType::int32;
    case at::kLong:
      return DataType::int64;
    case at::kByte:
      return DataType::uint8;
    default:
      return {};
  }
}

at::ScalarType scalar_type_of(DataType type) {
  switch (type) {
    case DataType::float32:
      return at::kFloat;
    case DataType::float64:
      return at::kDouble;
    case DataType::float16:
      return at::kHalf;
    case DataType::bfloat16:
      return at::kBFloat16;
    case DataType::int32:
      return at::kInt;
    case DataType::int64:
      return at::kLong;
    case DataType::uint8:
      return at::kByte;
  }
  throw UsageError("This is no DataType.");
}

namespace {

DataType data_type(const at::Tensor& tensor, std::string_view call) {
  if (const auto type = data_type_of(tensor.scalar_type())) return *type;
  throw UsageError(text(call, " takes float32, float64, float16, bfloat16, int32, int64 or uint8, not ",
                        tensor.scalar_type(), ". Convert the tensor first."));
}

bool overlap(const at::Tensor& left, const at::Tensor& right) {
  const auto begin = [](const at::Tensor& tensor) { return reinterpret_cast<std::uintptr_t>(tensor.data_ptr()); };
  return begin(left) < begin(right) + right.nbytes() && begin(right) < begin(left) + left.nbytes();
}

}  // namespace

DataType checked_type(const Communicator& communicator, const at::Tensor& tensor, std::string_view call) {
  if (!tensor.defined()) throw UsageError(text(call, " was given an undefined tensor. Pass a tensor with memory."));
  if (tensor.layout() != at::kStrided) throw UsageError(text(call, " takes dense tensors, not ", tensor.layout(), "."));
  if (!communicator.supports(tensor.device())) {
    throw UsageError(text(call, " was given a tensor on ", tensor.device(), ", which the ", communicator.backend(),
                          " communicator does not support. Move the tensor to the CPU, or use another backend."));
  }
  if (!tensor.is_contiguous()) {
    throw UsageError(text(call, " takes contiguous tensors; this one has sizes ", tensor.sizes(), " and strides ",
                          tensor.strides(), ". Call contiguous() first."));
  }
  if (tensor.is_neg()) {
    throw UsageError(text(call, " was given a tensor whose memory has the negated values. Call resolve_neg() first."));
  }
  return data_type(tensor, call);
}

DataType checked_pair(const Communicator& communicator, const at::Tensor& small, const at::Tensor& large, int times,
                      std::string_view call) {
  const auto type = checked_type(communicator, small, call);
  if (checked_type(communicator, large, call) != type) {
    throw UsageError(
        text(call, " takes two tensors of one dtype, not ", small.scalar_type(), " and ", large.scalar_type(), "."));
  }
  if (large.device() != small.device()) {
    throw UsageError(
        text(call, " takes two tensors on one device, not on ", small.device(), " and ", large.device(), "."));
  }
  if (large.numel() != small.numel() * times) {
    throw UsageError(times == 1 ? text(call, " takes two tensors with the same number of elements, not ", small.numel(),
                                       " and ", large.numel(), ".")
                                : text(call, " over ", times, " ranks needs ", times, " times ", small.numel(),
                                       " elements on the larger side, not ", large.numel(), "."));
  }
  return type;
}

DataType checked_gather(const Communicator& communicator, const at::Tensor& part, const at::Tensor& whole,
                        std::string_view call) {
  const auto type = checked_pair(communicator, part, whole, communicator.world_size(), call);
  const auto* own_part = part_of(whole.const_data_ptr(), communicator.rank(), part.nbytes());
  if (overlap(part, whole) && part.const_data_ptr() != own_part) {
    throw UsageError(text(call, " on rank ", communicator.rank(),
                          " was given overlapping tensors, but the smaller tensor is not part ", communicator.rank(),
                          " of the larger one. Pass that part, or tensors that do not overlap."));
  }
  return type;
}

DataType checked_parts(const Communicator& communicator, const at::Tensor& input, const at::Tensor& output,
                       std::string_view call) {
  const auto type = checked_pair(communicator, input, output, 1, call);
  if (input.numel() % communicator.world_size() != 0) {
    throw UsageError(text(call, " over ", communicator.world_size(), " ranks takes a multiple of ",
                          communicator.world_size(), " elements, not ", input.numel(), "."));
  }
  if (overlap(input, output)) {
    throw UsageError(text(call, " was given overlapping tensors. Pass tensors that do not overlap."));
  }
  return type;
}

DataType checked_in_out(const Communicator& communicator, const at::Tensor& input, const at::Tensor& output,
                        std::string_view call) {
  const auto type = checked_pair(communicator, input, output, 1, call);
  if (input.data_ptr() != output.data_ptr() && overlap(input, output)) {
    throw UsageError(text(call,
                          " was given partially overlapping tensors. Pass the same tensor twice, or tensors that "
                          "do not overlap."));
  }
  return type;
}

std::size_t checked_bytes(std::int64_t elements, at::ScalarType type) {
  std::size_t bytes = 0;
  if (elements < 0 || __builtin_mul_overflow(static_cast<std::size_t>(elements), c10::elementSize(type), &bytes) ||
      bytes > static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max())) {
    throw UsageError(text("allocate was given ", elements, " elements of ", type, "."));
  }
  return bytes;
}

void check_op(DataType type, ReduceOp op, std::string_view call) {
  if (op == ReduceOp::average && !is_floating(type)) {
    throw UsageError(text(call, " cannot average ", to_string(type),
                          ": the result would not be a whole number. Use ReduceOp::sum and divide."));
  }
}

void check_root(const Communicator& communicator, int root, std::string_view call) {
  if (root < 0 || root >= communicator.world_size()) {
    throw UsageError(
        text(call, " was given root ", root, ", but ranks go from 0 to ", communicator.world_size() - 1, "."));
  }
}

void check_color(int color) {
  if (color < 0) throw UsageError(text("split was given color ", color, "; colors start at 0."));
}

}  // namespace libtrain::detail
