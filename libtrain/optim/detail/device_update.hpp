#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>

#include <libtrain/optim/detail/dense_update.hpp>
#include <libtrain/optim/device_optimizer.hpp>

// Steps on devices: operators on lists of tensors, of which each launches a few kernels for all parameters, and nothing
// that the host waits for.

namespace libtrain::optim::detail {

/// The `found_inf` of a step that may be skipped.
class FoundInf {
 public:
  /// A step that is not skipped.
  FoundInf() = default;

  /// Throws UsageError unless the tensor is as DeviceOptimizer::step_unless takes it.
  explicit FoundInf(const at::Tensor& found_inf);

  /// As LibTorch's kernels take it: float32 on `device`, 1 to skip and otherwise 0, since they compare with 1; nothing
  /// for a step that is not skipped.
  std::optional<at::Tensor> on(const at::Device& device);

  /// Waits if the tensor is on a device.
  bool on_host();

  bool is_given() const { return given_.defined(); }

 private:
  at::Tensor given_;
  std::vector<at::Tensor> flags_;  // one for each device
  std::optional<bool> on_host_;
};

/// Parameters of one device and dtype that have gradients, without empty ones, which kernels for lists refuse.
struct DeviceList {
  std::vector<at::Tensor> parameters;  ///< as the optimizer has them
  std::vector<at::Tensor> values;      ///< what is updated: the parameters, or dense copies of those that are not dense
  std::vector<at::Tensor> gradients;   ///< in the dtype and layout of `values`

  at::Device device() const { return values.front().device(); }
  at::ScalarType type() const { return values.front().scalar_type(); }
};

/// Whether a parameter is updated in a DeviceList: dense or not, on a device, and of a floating dtype.
bool is_listed(const at::Tensor& parameter);

/// The parameters that a step has seen. One that an optimizer has several times, such as a tied weight, which
/// Module::parameters() lists once for each of its names, is updated once, as in Python.
using SeenParameters = std::unordered_set<const c10::TensorImpl*>;

/// The parameters of a group for which is_listed() is true, without those in `seen`, to which they are added. Throws
/// UsageError as gradient_of() does.
std::vector<DeviceList> device_lists(const torch::optim::OptimizerParamGroup& group, std::string_view optimizer,
                                     SeenParameters& seen);

/// After an update of `values`: copies those that are copies, and marks all parameters as changed.
void finish_update(const DeviceList& list);

/// Throws UsageError if StepGraph records a step and was not given the optimizer, whose rates are not `recording` then.
/// To be called first in a step on a device.
void require_given_to_recording(bool recording);

/// As prepare_state(), for a tensor of DeviceList::values. Throws UsageError if it would have to create the state while
/// a graph is recorded, in whose replays it would be created again.
void prepare_device_state(at::Tensor& state, const at::Tensor& value, bool recording);

/// The state of a parameter on a device. Only the device knows how many steps were skipped, so it counts the others:
/// step() of the base class is the count of the last read_device_steps().
struct DeviceAdamWState final : public torch::optim::AdamWParamState {
  at::Tensor device_step;  ///< float32 without dimensions, as LibTorch's kernels take it
};

/// The state of each of the list's parameters, created if there is none and continued from a state of the host; with
/// max_exp_avg_sq if `amsgrad`.
std::vector<DeviceAdamWState*> adamw_states(OptimizerStates& states, const DeviceList& list, bool amsgrad,
                                            bool recording);

/// The members of some states as lists. Counts the present step, unless it is skipped.
struct AdamWLists {
  std::vector<at::Tensor> first;
  std::vector<at::Tensor> second;
  std::vector<at::Tensor> largest_second;  ///< empty without amsgrad
  std::vector<at::Tensor> steps;
};
AdamWLists begin_adamw_step(const std::vector<DeviceAdamWState*>& states, bool amsgrad,
                            const std::optional<at::Tensor>& found_inf);

/// Copies the step counts of devices to step(), such as before a file is written. Waits once for each device.
void read_device_steps(const OptimizerStates& states);

/// The state as one of the host, for a parameter that is on the CPU now.
void leave_device(std::unique_ptr<torch::optim::OptimizerParamState>& state);

/// The rate of a group's step as a tensor without dimensions: that of a recording, or `rate`.
at::Tensor rate_tensor(const DeviceRates& rates, std::size_t group, double rate, const DeviceList& list);

/// Temporaries for a list of dense tensors, of their shapes and layouts, that can be multiplied by a factor each in one
/// operation for all. LibTorch 2.11 has none that does so with factors on the device: _foreach_mul_ of a list of
/// numbers launches a kernel for each tensor. Here all are in one memory, in rows of equal length of which none has
/// elements of two tensors, and rows are multiplied by a column of factors.
class ScaledTemporaries {
 public:
  /// Zeros.
  explicit ScaledTemporaries(const std::vector<at::Tensor>& like);

  const std::vector<at::Tensor>& tensors() const { return tensors_; }

  /// Multiplies each tensor by its factor, a tensor without dimensions of float32 or float64.
  void scale(const std::vector<at::Tensor>& factors);

 private:
  at::Tensor rows_;
  std::vector<std::int64_t> row_counts_;
  std::vector<at::Tensor> tensors_;
};

/// The loss of a step's closure, evaluated with gradients enabled; undefined without a closure.
at::Tensor evaluate(const torch::optim::Optimizer::LossClosure& closure);

/// A step of all parameters that have a gradient: calls device_update(list, options, group) for those on devices, and
/// for each of the others, unless the step is skipped, update(parameter, gradient, options).
template <typename Options, typename Update, typename DeviceUpdate>
void update_each(const torch::optim::Optimizer& optimizer, FoundInf& found_inf, std::string_view name,
                 const Update& update, const DeviceUpdate& device_update) {
  const auto& groups = optimizer.param_groups();
  SeenParameters seen;
  for (std::size_t index = 0; index < groups.size(); ++index) {
    const auto& options = options_of<Options>(groups[index], name);
    for (const auto& parameter : groups[index].params()) {
      if (is_listed(parameter) || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
      const auto gradient = gradient_of(parameter, name);
      if (gradient.defined() && !found_inf.on_host()) update(parameter, gradient, options);
    }
    for (const auto& list : device_lists(groups[index], name, seen)) {
      device_update(list, options, index);
      finish_update(list);
    }
  }
}

}  // namespace libtrain::optim::detail
