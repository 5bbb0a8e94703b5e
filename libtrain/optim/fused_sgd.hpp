#pragma once

#include <cstddef>

#include <torch/optim/sgd.h>

#include <libtrain/optim/device_optimizer.hpp>

namespace libtrain::optim {

namespace detail {
class FoundInf;
struct DeviceList;
}  // namespace detail

/// A drop-in replacement for torch::optim::SGD that makes one pass over memory instead of up to five.
///
///     FusedSgd sgd{model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)};
///
/// Options, state, parameter groups and files are torch's own: it loads what torch::optim::SGD has saved, and the other
/// way round. Results agree within rounding; on the CPU they do not depend on the number of threads or on the
/// processor.
///
/// The single pass on the CPU is for float32 and float64 parameters that are dense, in any order of dimensions
/// (channels_last). It runs on torch's intra-op threads. On a GPU it is LibTorch's fused kernel, for float16 and
/// bfloat16, too: one call for all parameters of a group, a device and a dtype, on the current stream, without waiting.
/// Gradients of another order are copied first, and so are parameters on a GPU that are not dense. Other parameters are
/// updated by tensor operators. Not thread-safe.
class FusedSgd : public torch::optim::SGD, public DeviceOptimizer {
 public:
  using torch::optim::SGD::SGD;

  /// Evaluates `closure`, if there is one, with gradients enabled, and returns its loss. Then updates all parameters
  /// that have a gradient, each once, also a tied weight, which Module::parameters() lists under each of its names:
  /// torch::optim updates it as often as it is listed. backward() refuses a graph from before the step, as in Python.
  /// Throws UsageError for sparse gradients, for gradients or loaded state of another shape than their parameter, and
  /// for parameter groups with options other than SGDOptions.
  at::Tensor step(LossClosure closure = nullptr) override;

  /// With dampening, which does not apply to a parameter's first gradient, the host waits in the first steps, until one
  /// is not skipped.
  void step_unless(const at::Tensor& found_inf) override;

  void begin_recording() override { rates_.begin_recording(param_groups_); }
  void end_recording() override { rates_.end_recording(); }
  void refresh_rates() override { rates_.refresh(param_groups_); }

 private:
  void update_all(detail::FoundInf& found_inf);
  void update(const at::Tensor& parameter, const at::Tensor& gradient, const torch::optim::SGDOptions& options);
  void update_on_device(const detail::DeviceList& list, const torch::optim::SGDOptions& options, std::size_t group,
                        detail::FoundInf& found_inf);

  DeviceRates rates_;
};

}  // namespace libtrain::optim
