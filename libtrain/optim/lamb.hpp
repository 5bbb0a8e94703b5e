#pragma once

#include <cstddef>
#include <tuple>
#include <vector>

#include <torch/optim/optimizer.h>

#include <libtrain/optim/device_optimizer.hpp>

namespace libtrain::optim {

namespace detail {
class FoundInf;
struct DeviceList;
}  // namespace detail

/// Options of Lamb, with the names and setters of torch::optim::AdamWOptions: `LambOptions(2e-3).weight_decay(0.01)`.
struct LambOptions : public torch::optim::OptimizerCloneableOptions<LambOptions> {
  using Betas = std::tuple<double, double>;

  LambOptions(double lr = 1e-3);
  TORCH_ARG(double, lr) = 1e-3;
  TORCH_ARG(Betas, betas) = Betas(0.9, 0.999);
  TORCH_ARG(double, eps) = 1e-6;
  TORCH_ARG(double, weight_decay) = 1e-2;
  /// Do not adapt or decay tensors of at most one dimension (biases and normalization layers). The paper's algorithm
  /// adapts and decays all.
  TORCH_ARG(bool, skip_one_dimensional) = false;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override;
  void set_lr(const double lr) override;
};

/// Adam with layer-wise adaptive rates, for large batches: You et al., "Large Batch Optimization for Deep Learning:
/// Training BERT in 76 minutes", ICLR 2020, arXiv:1904.00962, algorithm 2, with the identity for phi. For each tensor w
/// with gradient g, in its step t = 1, 2, ...:
///
///     m = beta1 m + (1 - beta1) g
///     v = beta2 v + (1 - beta2) g^2
///     u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay w
///     trust = |w| / |u|     (1 if |w| or |u| is 0)
///     w = w - lr trust u
///
/// The state is torch's AdamWParamState. A step makes two passes over memory. For layouts, threads, reproducibility and
/// step counts see FusedAdamW; for GPUs also Lars.
class Lamb : public torch::optim::Optimizer, public DeviceOptimizer {
 public:
  /// Throws UsageError for options that are negative or not finite, betas that are not below 1, and groups with options
  /// of another type.
  explicit Lamb(const std::vector<torch::optim::OptimizerParamGroup>& groups, const LambOptions& defaults = {});
  explicit Lamb(std::vector<at::Tensor> parameters, const LambOptions& defaults = {});

  /// As FusedAdamW::step.
  at::Tensor step(LossClosure closure = nullptr) override;

  void step_unless(const at::Tensor& found_inf) override;
  void begin_recording() override { rates_.begin_recording(param_groups_); }
  void end_recording() override { rates_.end_recording(); }
  void refresh_rates() override { rates_.refresh(param_groups_); }

  /// Waits once for each GPU, for the step counts.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  void update_all(detail::FoundInf& found_inf);
  void update(const at::Tensor& parameter, const at::Tensor& gradient, const LambOptions& options);
  void update_on_device(const detail::DeviceList& list, const LambOptions& options, std::size_t group,
                        detail::FoundInf& found_inf);

  DeviceRates rates_;
};

}  // namespace libtrain::optim
