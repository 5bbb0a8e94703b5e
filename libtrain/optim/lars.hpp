#pragma once

#include <vector>

#include <torch/optim/optimizer.h>

namespace libtrain::optim {

/// Options of Lars, with setters as in torch's optimizers: `LarsOptions(4.8).weight_decay(5e-5)`.
struct LarsOptions : public torch::optim::OptimizerCloneableOptions<LarsOptions> {
  LarsOptions(double lr);
  TORCH_ARG(double, lr);
  TORCH_ARG(double, momentum) = 0.9;
  TORCH_ARG(double, weight_decay) = 0;
  /// eta in the paper: a step of rate 1 changes a tensor by this share of its norm.
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
/// FusedSgd.
class Lars : public torch::optim::Optimizer {
 public:
  /// Throws UsageError for options that are negative or not finite, and for groups with options of another type.
  Lars(const std::vector<torch::optim::OptimizerParamGroup>& groups, const LarsOptions& defaults);
  Lars(std::vector<at::Tensor> parameters, const LarsOptions& defaults);

  /// As FusedSgd::step.
  at::Tensor step(LossClosure closure = nullptr) override;

  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  void update(const at::Tensor& parameter, const at::Tensor& gradient, const LarsOptions& options);
};

}  // namespace libtrain::optim
