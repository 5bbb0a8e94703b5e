#pragma once

#include <torch/optim/adamw.h>

namespace libtrain::optim {

/// torch::optim::AdamW in one pass over memory, where that makes nine: change the name, and keep the rest.
///
///     FusedAdamW adamw{model->parameters(), torch::optim::AdamWOptions(1e-3).weight_decay(0.05)};
///
/// Options, state, parameter groups and files are torch's own: what torch::optim::AdamW has saved can be loaded here,
/// and the other way round. Results agree to rounding; they do not depend on the number of threads or on the processor.
///
/// One pass is made without amsgrad, for parameters of float32 and float64 on the CPU that are dense, in any order of
/// dimensions (channels_last), on torch's intra-op threads; gradients of another order are copied first. Others are
/// updated by tensor operators. One thread at a time.
class FusedAdamW : public torch::optim::AdamW {
 public:
  using torch::optim::AdamW::AdamW;

  /// Evaluates `closure`, if there is one, with gradients enabled, and returns its loss. Then updates all parameters
  /// that have a gradient; a backward() through a graph from before is refused afterwards. Throws UsageError for sparse
  /// gradients, for gradients or loaded state of another shape than their parameter, and for parameter groups with
  /// options other than AdamWOptions.
  at::Tensor step(LossClosure closure = nullptr) override;

 private:
  void update(const at::Tensor& parameter, const at::Tensor& gradient, const torch::optim::AdamWOptions& options);
};

}  // namespace libtrain::optim
