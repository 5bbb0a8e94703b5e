#pragma once

#include <tuple>
#include <vector>

#include <torch/optim/optimizer.h>

namespace libtrain::optim {

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
/// The state is torch's AdamWParamState. A step makes two passes over memory. For layouts, threads and reproducibility
/// see FusedAdamW.
class Lamb : public torch::optim::Optimizer {
 public:
  /// Throws UsageError for options that are negative or not finite, betas that are not below 1, and groups with options
  /// of another type.
  explicit Lamb(const std::vector<torch::optim::OptimizerParamGroup>& groups, const LambOptions& defaults = {});
  explicit Lamb(std::vector<at::Tensor> parameters, const LambOptions& defaults = {});

  /// As FusedAdamW::step.
  at::Tensor step(LossClosure closure = nullptr) override;

  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  void update(const at::Tensor& parameter, const at::Tensor& gradient, const LambOptions& options);
};

}  // namespace libtrain::optim
