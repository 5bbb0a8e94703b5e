#pragma once

#include <torch/optim/sgd.h>

namespace libtrain::optim {

/// A drop-in replacement for torch::optim::SGD that makes one pass over memory instead of up to five.
///
///     FusedSgd sgd{model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)};
///
/// Options, state, parameter groups and files are torch's own: it loads what torch::optim::SGD has saved, and the other
/// way round. Results agree within rounding; they do not depend on the number of threads or on the processor.
///
/// The single pass is for float32 and float64 parameters on the CPU that are dense, in any order of dimensions
/// (channels_last). It runs on torch's intra-op threads; gradients of another order are copied first. Other parameters
/// are updated by tensor operators. Not thread-safe.
class FusedSgd : public torch::optim::SGD {
 public:
  using torch::optim::SGD::SGD;

  /// Evaluates `closure`, if there is one, with gradients enabled, and returns its loss. Then updates all parameters
  /// that have a gradient; backward() refuses a graph from before the step, as in Python. Throws UsageError for sparse
  /// gradients, for gradients or loaded state of another shape than their parameter, and for parameter groups with
  /// options other than SGDOptions.
  at::Tensor step(LossClosure closure = nullptr) override;

 private:
  void update(const at::Tensor& parameter, const at::Tensor& gradient, const torch::optim::SGDOptions& options);
};

}  // namespace libtrain::optim
