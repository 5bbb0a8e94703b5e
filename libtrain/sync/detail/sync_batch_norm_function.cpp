#include <libtrain/sync/detail/sync_batch_norm_function.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::ScalarType statistics_type(const at::Tensor& input) {
  return input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

std::int64_t values_per_channel(const at::Tensor& input) {
  return input.numel() / std::max<std::int64_t>(input.size(1), 1);
}

// This rank's [count, mean of each channel, sum of squared deviations of each channel].
at::Tensor local_moments(const at::Tensor& input) {
  const auto channels = input.size(1);
  const auto count = values_per_channel(input);
  const auto options = input.options().dtype(statistics_type(input));
  const auto moments = at::zeros({1 + 2 * channels}, options);
  if (count == 0) return moments;
  // On the host, 16-bit input has statistics in float32 only if running statistics in float32 are passed.
  std::optional<at::Tensor> running_mean;
  std::optional<at::Tensor> running_variance;
  if (input.scalar_type() != statistics_type(input)) {
    running_mean = at::zeros({channels}, options);
    running_variance = at::zeros({channels}, options);
  }
  const auto [mean, variance] = at::batch_norm_update_stats(input, running_mean, running_variance, /*momentum=*/0);
  moments.narrow(0, 0, 1).fill_(count);
  moments.narrow(0, 1, channels).copy_(mean);
  moments.narrow(0, 1 + channels, channels).copy_(variance).mul_(count);
  return moments;
}

// The normalisation with given statistics: ATen's kernel for evaluation.
at::Tensor normalize(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& mean,
                     const at::Tensor& variance, double eps) {
  if (input.numel() == 0) return at::empty_like(input);
  return std::get<0>(
      at::native_batch_norm(input, weight, bias, mean, variance, /*training=*/false, /*momentum=*/0, eps));
}

// Lets a graph hold an object that is not a tensor.
struct StateHolder : torch::CustomClassHolder {
  explicit StateHolder(std::shared_ptr<SyncBatchNormState> the_state) : state(std::move(the_state)) {}
  std::shared_ptr<SyncBatchNormState> state;
};

// The data that a forward pass has saved for its backward pass.
struct Kept {
  explicit Kept(AutogradContext& context) : eps(context.saved_data["eps"].toDouble()) {
    const auto saved = context.get_saved_variables();
    input = saved[0];
    weight = saved[1];
    mean = saved[2];
    variance = saved[3];
    count = saved[4];
    inverse_deviation = (variance + eps).rsqrt();
    const auto holder = context.saved_data["state"].toCapsule();
    state = static_cast<const StateHolder&>(*holder).state;
  }

  double eps;
  at::Tensor input, weight, mean, variance, count, inverse_deviation;
  std::shared_ptr<SyncBatchNormState> state;
};

struct Gradients {
  at::Tensor input, weight, bias;
};

// As if the statistics were constants. The gradients of weight and bias are sums over this rank's samples of dy * xhat
// and dy, where xhat is the normalised input.
Gradients gradients_at_fixed_statistics(const Kept& kept, const at::Tensor& output_gradient, bool needs_input) {
  if (kept.input.numel() == 0) {
    return {at::zeros_like(kept.input), at::zeros_like(kept.weight), at::zeros_like(kept.weight)};
  }
  // ATen's fast path wants both in one memory format.
  const auto dense = output_gradient.contiguous(kept.input.suggest_memory_format());
  auto [input, weight, bias] = at::native_batch_norm_backward(dense, kept.input, kept.weight, kept.mean, kept.variance,
                                                              kept.mean, kept.inverse_deviation, /*train=*/false,
                                                              kept.eps, std::array<bool, 3>{needs_input, true, true});
  return {std::move(input), std::move(weight), std::move(bias)};
}

// Adds -weight / sqrt(variance + eps) * (mean of dy + xhat * mean of dy * xhat), means over all ranks' samples.
void add_gradient_through_statistics(const Kept& kept, Gradients& gradients) {
  const auto channels = kept.mean.numel();
  const double rank_weight = kept.state->gradient_weight;
  const auto sums = at::cat({gradients.bias, gradients.weight});
  if (rank_weight == 0) {
    sums.zero_();  // a rank of weight 0 may have NaN
  } else {
    sums.mul_(rank_weight);
  }
  kept.state->communicator->all_reduce(sums).wait();
  if (rank_weight == 0 || kept.input.numel() == 0) return;
  const auto means = sums / (kept.count * rank_weight);
  const auto factor = -kept.weight * kept.inverse_deviation;
  // An affine function of xhat: uses the kernel of the forward pass.
  gradients.input.add_(normalize(kept.input, factor * means.narrow(0, channels, channels),
                                 factor * means.narrow(0, 0, channels), kept.mean, kept.variance, kept.eps));
}

class NormalizeByBatch : public torch::autograd::Function<NormalizeByBatch> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                            const at::Tensor& bias, const BatchStatistics& statistics, double eps,
                            const std::shared_ptr<SyncBatchNormState>& state) {
    const auto type = statistics.mean.scalar_type();
    const auto scale = weight.to(type);
    context->save_for_backward({input, scale, statistics.mean, statistics.variance, statistics.count});
    context->saved_data["eps"] = eps;
    context->saved_data["state"] = c10::IValue::make_capsule(c10::make_intrusive<StateHolder>(state));
    return normalize(input, scale, bias.to(type), statistics.mean, statistics.variance, eps);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    if (at::GradMode::is_enabled()) {
      throw UsageError(
          "SyncBatchNorm cannot be differentiated twice, so backward() with create_graph cannot pass through it. Use "
          "torch::nn::BatchNorm in modules whose gradients are differentiated again.");
    }
    const Kept kept{*context};
    const bool needs_input = context->needs_input_grad(0);
    auto gradients = gradients_at_fixed_statistics(kept, output_gradients[0], needs_input);
    if (needs_input) add_gradient_through_statistics(kept, gradients);
    return {gradients.input, gradients.weight, gradients.bias, at::Tensor{}, at::Tensor{}, at::Tensor{}};
  }
};

}  // namespace

void require_more_than_one_value(double values, const Communicator& communicator) {
  if (values != 1) return;
  throw UsageError(
      text("Expected more than 1 value per channel when training, but the batches of all ", communicator.world_size(),
           " ranks together have 1. Train with larger batches, or call eval() first."),
      ErrorScope::all_ranks);
}

BatchStatistics batch_statistics(const at::Tensor& input, Communicator& communicator) {
  const at::NoGradGuard no_grad;
  const auto channels = input.size(1);
  const auto mine = local_moments(input);
  const auto gathered = at::empty({communicator.world_size(), mine.numel()}, mine.options());
  communicator.all_gather(mine, gathered).wait();

  const auto moments = gathered.to(at::kDouble);
  const auto counts = moments.narrow(1, 0, 1);  // [ranks, 1]
  const auto means = moments.narrow(1, 1, channels);
  const auto total = counts.sum();
  BatchStatistics result;
  if (values_per_channel(input) < 2) {
    // With two values or more on this rank, the total is never 1 or 0.
    const auto values = total.item<double>();
    require_more_than_one_value(values, communicator);
    result.is_empty = values == 0;
  }
  const auto mean = (counts * means).sum(0) / total;
  const auto within_ranks = moments.narrow(1, 1 + channels, channels).sum(0);
  const auto between_ranks = (counts * (means - mean).square()).sum(0);
  result.count = total;
  result.mean = mean.to(mine.scalar_type());
  result.variance = ((within_ranks + between_ranks) / total).to(mine.scalar_type());
  return result;
}

at::Tensor sync_batch_norm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                           const BatchStatistics& statistics, double eps,
                           const std::shared_ptr<SyncBatchNormState>& state) {
  return NormalizeByBatch::apply(input, weight, bias, statistics, eps, state);
}

}  // namespace libtrain::detail
