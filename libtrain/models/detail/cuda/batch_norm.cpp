#include <libtrain/models/detail/cuda/batch_norm.hpp>

#include <cstdint>
#include <optional>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/custom_function.h>

#include <libtrain/models/detail/cuda/batch_norm_kernels.hpp>

namespace libtrain::models::detail {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr auto kLayout = at::MemoryFormat::ChannelsLast;

std::optional<NormType> type_of(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat:
      return NormType::float32;
    case at::kBFloat16:
      return NormType::bfloat16;
    case at::kHalf:
      return NormType::float16;
    default:
      return std::nullopt;
  }
}

bool is_aligned(const at::Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
}

// As the kernels read matrices.
at::Tensor as_matrix(const at::Tensor& tensor) {
  const auto result = tensor.contiguous(kLayout);
  return is_aligned(result) ? result : result.clone();
}

NormShape shape_of(const at::Tensor& x) {
  return {.rows = x.numel() / x.size(1), .channels = x.size(1), .type = *type_of(x)};
}

at::Tensor floats(const at::Tensor& like, at::IntArrayRef sizes) {
  return at::empty(sizes, like.options().dtype(at::kFloat).memory_format(at::MemoryFormat::Contiguous));
}

struct FusedBatchNorm : torch::autograd::Function<FusedBatchNorm> {
  // statistics: [2, channels], the means and the inverse deviations.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& scale,
                            const at::Tensor& shift, const std::optional<at::Tensor>& residual,
                            const at::Tensor& statistics, bool is_rectified) {
    const auto added = residual ? as_matrix(*residual) : at::Tensor();
    auto outputs = at::empty_like(x, x.options(), kLayout);
    const auto* numbers = statistics.const_data_ptr<float>();
    launch_norm(shape_of(x),
                {.inputs = x.const_data_ptr(),
                 .residuals = added.defined() ? added.const_data_ptr() : nullptr,
                 .means = numbers,
                 .inverse_deviations = numbers + x.size(1),
                 .scale = scale.const_data_ptr<float>(),
                 .shift = shift.const_data_ptr<float>(),
                 .is_rectified = is_rectified,
                 .outputs = outputs.mutable_data_ptr()},
                c10::cuda::getCurrentCUDAStream());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    const bool reads_outputs = is_rectified && residual.has_value();
    context->save_for_backward({x, scale, shift, statistics, reads_outputs ? outputs : at::Tensor()});
    context->saved_data["is_rectified"] = is_rectified;
    context->saved_data["has_residual"] = residual.has_value();
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients_of_outputs) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "A ResNet in channels_last on a GPU has no second derivative, which create_graph asks for. Train it in "
                "the contiguous layout.");
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &scale = saved[1], &shift = saved[2], &statistics = saved[3], &outputs = saved[4];
    const c10::DeviceGuard guard(x.device());
    const auto gradients = as_matrix(gradients_of_outputs[0]);
    const auto shape = shape_of(x);
    auto to_inputs = at::empty_like(x);
    auto to_residuals = outputs.defined() ? at::empty_like(x) : at::Tensor();
    auto means_of_columns = floats(x, {2, shape.channels});
    auto to_scale = at::empty_like(scale), to_shift = at::empty_like(shift);
    auto partial_sums = floats(x, {norm_partial_sums(shape)});
    const auto* numbers = statistics.const_data_ptr<float>();
    auto* means = means_of_columns.mutable_data_ptr<float>();
    launch_norm_backward(shape,
                         {.gradients = gradients.const_data_ptr(),
                          .inputs = x.const_data_ptr(),
                          .outputs = outputs.defined() ? outputs.const_data_ptr() : nullptr,
                          .means = numbers,
                          .inverse_deviations = numbers + shape.channels,
                          .scale = scale.const_data_ptr<float>(),
                          .shift = shift.const_data_ptr<float>(),
                          .is_rectified = context->saved_data["is_rectified"].toBool(),
                          .partial_sums = partial_sums.mutable_data_ptr<float>(),
                          .to_residuals = to_residuals.defined() ? to_residuals.mutable_data_ptr() : nullptr,
                          .mean_gradients = means,
                          .mean_products = means + shape.channels,
                          .to_scale = to_scale.mutable_data_ptr<float>(),
                          .to_shift = to_shift.mutable_data_ptr<float>(),
                          .to_inputs = to_inputs.mutable_data_ptr()},
                         c10::cuda::getCurrentCUDAStream());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    const bool has_residual = context->saved_data["has_residual"].toBool();
    const auto& to_residual = to_residuals.defined() ? to_residuals : has_residual ? gradients : to_residuals;
    return {to_inputs, to_scale, to_shift, to_residual, {}, {}};
  }
};

// Means and inverse deviations of x, which the running statistics take in.
at::Tensor statistics_of(torch::nn::BatchNorm2dImpl& norm, const at::Tensor& x) {
  const auto shape = shape_of(x);
  auto statistics = floats(x, {2, shape.channels});
  auto partial_sums = floats(x, {norm_partial_sums(shape)});
  auto* numbers = statistics.mutable_data_ptr<float>();
  launch_norm_statistics(shape,
                         {.inputs = x.const_data_ptr(),
                          .partial_sums = partial_sums.mutable_data_ptr<float>(),
                          .epsilon = norm.options.eps(),
                          .momentum = *norm.options.momentum(),
                          .means = numbers,
                          .inverse_deviations = numbers + shape.channels,
                          .running_means = norm.running_mean.mutable_data_ptr<float>(),
                          .running_variances = norm.running_var.mutable_data_ptr<float>(),
                          .batches = norm.num_batches_tracked.mutable_data_ptr<std::int64_t>()},
                         c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return statistics;
}

}  // namespace

bool can_fuse_batch_norm(const torch::nn::BatchNorm2dImpl& norm, const at::Tensor& x) {
  if (!x.is_cuda() || x.dim() != 4 || !x.is_contiguous(kLayout) || !type_of(x)) return false;
  const auto channels = x.size(1);
  if (channels == 0 || channels % kNormVector != 0 || x.numel() / channels < 2 || !is_aligned(x)) return false;
  if (!norm.is_training() || !norm.options.momentum().has_value()) return false;
  for (const auto& tensor : {norm.weight, norm.bias, norm.running_mean, norm.running_var}) {
    if (!tensor.defined() || tensor.scalar_type() != at::kFloat || tensor.device() != x.device() ||
        tensor.numel() != channels || !tensor.is_contiguous()) {
      return false;
    }
  }
  const auto& batches = norm.num_batches_tracked;  // Module::to(dtype) converts it, too
  return batches.defined() && batches.scalar_type() == at::kLong && batches.device() == x.device();
}

at::Tensor fused_batch_norm(torch::nn::BatchNorm2dImpl& norm, const at::Tensor& x, const at::Tensor& residual,
                            bool is_rectified) {
  const c10::DeviceGuard guard(x.device());
  const auto added = residual.defined() ? std::optional(residual) : std::nullopt;
  return FusedBatchNorm::apply(x, norm.weight, norm.bias, added, statistics_of(norm, x), is_rectified);
}

}  // namespace libtrain::models::detail
