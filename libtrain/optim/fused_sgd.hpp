#pragma once

#include <torch/optim/sgd.h>

namespace libtrain::optim {

/// torch::optim::SGD in one pass over memory, where that makes up to five: change the name, and keep the rest.
///
///     FusedSgd sgd{model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)};
///
/// Options, state, parameter groups and files are torch's own: what torch::optim::SGD has saved can be loaded here, and
/// the other way round. Results agree to rounding; they do not depend on the number of threads or on the processor.
///
/// One pass is made for parameters of float32 and float64 on the CPU that are dense, in any order of dimensions
/// (channels_last), on torch's intra-op threads; gradients of another order are copied first. Others are updated by
/// tensor operators. One thread at a time.
class FusedSgd : public torch::optim::SGD {
 public:
  using torch::optim::SGD::SGD;

  /// Evaluates `closure`, if there is one, with gradients enabled, and returns its loss. Then updates all parameters
  /// that have a gradient; a backward() through a graph from before is refused afterwards, as in Python. Throws
  /// UsageError for sparse gradients, for gradients or loaded state of another shape than their parameter, and for
  /// parameter groups with options other than SGDOptions.
  at::Tensor step(LossClosure closure = nullptr) override;

 private:
  void update(const at::Tensor& parameter, const at::Tensor& gradient, const torch::optim::SGDOptions& options);
};

}  // namespace libtrain::optim
