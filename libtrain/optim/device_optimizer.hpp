#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

namespace libtrain::optim {

/// An optimizer that steps on a device while the host does not know whether the step happens, and that a CUDA graph can
/// record: FusedSgd, FusedAdamW, Lars and Lamb.
///
///     const auto finite = scaler.unscale(sgd);
///     sgd.step_unless(finite.found_inf());        // LossScaler::step() does this
///
/// StepGraph records whole steps. By hand, make a few steps first, so that all state exists, and record one:
///
///     sgd.begin_recording();
///     graph.capture_begin();                      // at::cuda::CUDAGraph
///     ... forward pass, backward(), wait() ...
///     sgd.step();                                 // or step_unless()
///     graph.capture_end();
///     sgd.end_recording();
///     for (...) {
///       rate.set(step);
///       sgd.refresh_rates();
///       graph.replay();
///     }
///
/// A recorded step reads the learning rates from the device, in float32. All other options, such as momentum and weight
/// decay, are those of the recording, and so is the set of parameters with a gradient. After load() or a change of
/// parameters, record again. Not thread-safe.
class DeviceOptimizer {
 public:
  virtual ~DeviceOptimizer() = default;

  /// Makes a step as the optimizer's step() does, unless the one element of `found_inf` (float32) is not 0: then
  /// neither parameters nor state change, nor do step counts. `found_inf` should be on the device of the parameters,
  /// and then the host does not wait; for parameters on the CPU it does. Throws UsageError for another dtype or number
  /// of elements, and as step() does.
  virtual void step_unless(const at::Tensor& found_inf) = 0;

  /// From here to end_recording(), steps read the learning rates from tensors on the device. They throw UsageError
  /// instead of creating state, since a graph would create it anew in each replay. Call it before the capture begins.
  virtual void begin_recording() = 0;

  /// Steps read the options on the host again. Recorded steps keep the tensors.
  virtual void end_recording() = 0;

  /// Copies the present learning rates of all groups to the tensors of recorded steps, in the order of the current
  /// stream, without waiting; one small operation for each rate that has changed. Nothing to do without a recording.
  virtual void refresh_rates() = 0;
};

/// The learning rates of an optimizer's groups on the devices of their parameters, for optimizers that implement
/// DeviceOptimizer.
class DeviceRates {
 public:
  /// As the functions of DeviceOptimizer.
  void begin_recording(const std::vector<torch::optim::OptimizerParamGroup>& groups);
  void end_recording() { recording_ = false; }
  void refresh(const std::vector<torch::optim::OptimizerParamGroup>& groups);

  bool is_recording() const { return recording_; }

  /// While recording: the rate of the group as a float32 tensor without dimensions.
  at::Tensor of(std::size_t group, const at::Device& device) const;

 private:
  struct Rate {
    std::size_t group = 0;
    double value = 0;
    at::Tensor tensor;
  };

  std::vector<Rate> rates_;
  bool recording_ = false;
};

}  // namespace libtrain::optim
