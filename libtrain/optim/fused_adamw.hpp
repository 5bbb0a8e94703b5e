#pragma once

#include <cstddef>

#include <torch/optim/adamw.h>

#include <libtrain/optim/device_optimizer.hpp>

namespace libtrain::optim {

namespace detail {
class FoundInf;
struct DeviceList;
}  // namespace detail

/// A drop-in replacement for torch::optim::AdamW that makes one pass over memory instead of nine.
///
///     FusedAdamW adamw{model->parameters(), torch::optim::AdamWOptions(1e-3).weight_decay(0.05)};
///
/// Options, state, parameter groups and files are torch's own: it loads what torch::optim::AdamW has saved, and the
/// other way round. Results agree within rounding; on the CPU they do not depend on the number of threads or on the
/// processor.
///
/// The single pass on the CPU is for float32 and float64 parameters that are dense, in any order of dimensions
/// (channels_last), without amsgrad. It runs on torch's intra-op threads. On a GPU it is LibTorch's fused kernel, for
/// float16, bfloat16 and amsgrad, too: one call for all parameters of a group, a device and a dtype, on the current
/// stream, without waiting. Gradients of another order are copied first, and so are parameters on a GPU that are not
/// dense. Other parameters are updated by tensor operators. Not thread-safe.
///
/// For parameters on a GPU the device counts the steps, in float32, since the host does not know which were skipped:
/// AdamWParamState::step() in state() is up to date after save() and optimizer_state() only.
class FusedAdamW : public torch::optim::AdamW, public DeviceOptimizer {
 public:
  using torch::optim::AdamW::AdamW;

  /// As FusedSgd::step, with AdamWOptions.
  at::Tensor step(LossClosure closure = nullptr) override;

  void step_unless(const at::Tensor& found_inf) override;
  void begin_recording() override { rates_.begin_recording(param_groups_); }
  void end_recording() override { rates_.end_recording(); }
  void refresh_rates() override { rates_.refresh(param_groups_); }

  /// Waits once for each GPU, for the step counts.
  void save(torch::serialize::OutputArchive& archive) const override;

 private:
  void update_all(detail::FoundInf& found_inf);
  void update(const at::Tensor& parameter, const at::Tensor& gradient, const torch::optim::AdamWOptions& options);
  void update_on_device(const detail::DeviceList& list, const torch::optim::AdamWOptions& options, std::size_t group,
                        detail::FoundInf& found_inf);

  DeviceRates rates_;
};

}  // namespace libtrain::optim
