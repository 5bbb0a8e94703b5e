#pragma once

#include <cstddef>
#include <vector>

#include <torch/optim/optimizer.h>

#include <libtrain/optim/device_optimizer.hpp>

namespace libtrain::optim {

namespace detail {
class FoundInf;
struct DeviceList;
}  // namespace detail

/// Options of Lars, with setters as in torch's optimizers: `LarsOptions(4.8).weight_decay(5e-5)`.
struct LarsOptions : public torch::optim::OptimizerCloneableOptions<LarsOptions> {
  LarsOptions(double lr);
  TORCH_ARG(double, lr);
  TORCH_ARG(double, momentum) = 0.9;
  TORCH_ARG(double, weight_decay) = 0;
  /// eta in the paper: a gradient adds at most the learning rate times this share of the tensor's norm to a step, and
  /// with momentum m, of which steps are sums, these become up to 1 / (1 - m) times as long.
  TORCH_ARG(double, trust_coefficient) = 0.001;
  TORCH_ARG(double, eps) = 1e-8;
  /// Do not adapt or decay tensors of at most one dimension (biases and normalization layers).
  TORCH_ARG(bool, skip_one_dimensional) = true;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override;
  void set_lr(const double lr) override;
};

/// Layer-wise adaptive rate scaling for SGD with large batches: You, Gitman and Ginsburg, "Large Batch Training of
/// Convolutional Networks", 2017, arXiv:1708.03888, algorithm 1. For each tensor w with gradient g:
///
///     trust = trust_coefficient |w| / (|g| + weight_decay |w| + eps)     (1 if |w| or |g| is 0)
///     v = momentum v + lr trust (g + weight_decay w)
///     w = w - v
///
/// The rate is part of v, as in the paper and in MLPerf's ResNet-50: a changed rate does not scale the contribution of
/// earlier gradients. In torch::optim::SGD it does. Use it with a warm-up and rates of 1 to 20.
///
/// The state is torch's SGDParamState, with v as momentum buffer. For layouts, threads and reproducibility see
/// FusedSgd. On a GPU, a step is a fixed number of operations for each group, device and dtype, whatever the number of
/// parameters; norms are computed in float32 (float64 for float64), and need temporary memory of the parameters' size.
class Lars : public torch::optim::Optimizer, public DeviceOptimizer {
 public:
  /// Throws UsageError for options that are negative or not finite, and for groups with options of another type.
  Lars(const std::vector<torch::optim::OptimizerParamGroup>& groups, const LarsOptions& defaults);
  Lars(std::vector<at::Tensor> parameters, const LarsOptions& defaults);

  /// As FusedSgd::step.
  at::Tensor step(LossClosure closure = nullptr) override;

  void step_unless(const at::Tensor& found_inf) override;
  void begin_recording() override { rates_.begin_recording(param_groups_); }
  void end_recording() override { rates_.end_recording(); }
  void refresh_rates() override { rates_.refresh(param_groups_); }

  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  void update_all(detail::FoundInf& found_inf);
  void update(const at::Tensor& parameter, const at::Tensor& gradient, const LarsOptions& options);
  void update_on_device(const detail::DeviceList& list, const LarsOptions& options, std::size_t group,
                        detail::FoundInf& found_inf);

  DeviceRates rates_;
};

}  // namespace libtrain::optim
