#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/optim/device_value.hpp>

namespace libtrain::optim {

/// Whether gradients may be float16, which they are if the parameters are.
enum class Float16Gradients {
  refused,  ///< UsageError, as in PyTorch: small gradients underflow again when they are divided by the scale
  allowed,  ///< they are divided all the same, such as for an optimizer that needs unscaled gradients
};

struct LossScalerOptions {
  double initial_scale = 65536;         ///< rounded to float32, like every later scale; powers of 2 lose no bit
  double growth_factor = 2;             ///< 1 or more; with 1, and a backoff_factor of 1, the scale is static
  double backoff_factor = 0.5;          ///< more than 0, at most 1
  std::int64_t growth_interval = 2000;  ///< consecutive steps without overflow before the scale grows; 1 or more
  double minimum_scale = 1;             ///< lower bound of the scale; more than 0, at most initial_scale
  Float16Gradients float16_gradients = Float16Gradients::refused;
};

/// The state of a LossScaler, for checkpoints.
struct LossScalerState {
  double scale = 65536;
  std::int64_t finite_steps = 0;  ///< steps without overflow since the last one, or since the scale last grew
  std::int64_t overflows = 0;     ///< consecutive steps with overflow: many at the minimum scale show a diverged run
};

/// Dynamic loss scaling for float16: the loss is multiplied so that small gradients do not underflow, gradients are
/// divided before the step, and a step whose gradients have NaN or infinity is skipped and lowers the scale.
/// Micikevicius et al., "Mixed Precision Training", ICLR 2018, section 3.2; the scale is updated as in
/// torch.amp.GradScaler.
///
///     scaler.scale(loss).backward();
///     synchronizer.wait();                       // averages first
///     scaler.unscale(optimizer);                 // needed only before code that reads gradients, such as clipping
///     optim::clip_gradients(model->parameters(), {.max_norm = 1});
///     scaler.step(optimizer);                    // unscales if unscale() was not called
///     scaler.update();
///     synchronizer.zero_grad();
///
/// Every rank makes the same decision without communication, because NaN or infinity on any rank is in every rank's
/// average. This requires GradientSynchronizer::wait() before, and NonFinite::unchecked. With NonFinite::skipped the
/// gradients are undefined, and report_overflow() replaces them:
///
///     if (!synchronizer.wait()) scaler.report_overflow();
///
/// With gradients on a GPU the scale and its counters are there, too, from the first update() on, and the host waits
/// only if it asks: for state(), for the bool in a FiniteCheck, and in step() of an optimizer that is not a
/// DeviceOptimizer. A CUDA graph may record all of this from scale() to update(), after some steps without recording.
///
/// A rank that calls join() must also call step() and update() in those rounds. Several optimizers may step before one
/// update(), each skipped by its own gradients only; all use the same scale. Not thread-safe.
class LossScaler {
 public:
  /// Throws UsageError for options out of range.
  explicit LossScaler(const LossScalerOptions& options = {});

  /// `loss` times the scale, in float32 if it is float16 or bfloat16; any shape. Throws UsageError for a dtype that is
  /// not floating.
  at::Tensor scale(const at::Tensor& loss) const;

  /// Divides the gradients of all the optimizer's parameters by the scale, in place, and checks them for NaN and
  /// infinity in the same pass; returns whether all are finite. Parameters without a gradient are skipped. On a GPU,
  /// gradients of bfloat16 take one more pass, and are multiplied by the inverse rounded to bfloat16, which is exact
  /// for powers of 2. Throws UsageError if a parameter has been unscaled since the last update(), if no parameter has a
  /// gradient, and for gradients that gradient_norm() or Float16Gradients refuses.
  FiniteCheck unscale(const torch::optim::Optimizer& optimizer);

  /// The same for parameters that are not in a torch::optim::Optimizer: step with them only if it returns true, or with
  /// DeviceOptimizer::step_unless(check.found_inf()).
  FiniteCheck unscale(const std::vector<at::Tensor>& parameters);

  /// The same for gradients that differ between ranks, such as parts of them: returns whether those of all ranks are
  /// finite and no rank has called report_overflow(), by one all-reduce of a number, on the device of the gradients.
  /// All ranks must call it, with parameters on devices of one type that the communicator supports; a rank may have
  /// none with a gradient. Throws as all_reduce() does, too.
  FiniteCheck unscale(const std::vector<at::Tensor>& parameters, Communicator& communicator);

  /// Counts the current step as one with overflow. Until update(), unscale() and step() return false and touch no
  /// gradient.
  void report_overflow();

  /// Unscales parameters that have not been unscaled since the last update(), then calls `optimizer.step()` if all
  /// gradients are finite; returns whether it did. With gradients on a GPU it calls the step_unless() of an optimizer
  /// that is a DeviceOptimizer, and does not wait; for others it waits for the answer. Throws UsageError if it has been
  /// called for this optimizer since the last update(), and as unscale() does.
  FiniteCheck step(torch::optim::Optimizer& optimizer);

  /// Ends the step: lowers the scale if there was an overflow since the last update(), raises it after growth_interval
  /// steps without one. Throws UsageError if there was no unscale(), step() or report_overflow() since the last
  /// update().
  void update();

  /// For logs, and for checkpoints between update() and the next backward(). Waits if the state is on a GPU.
  LossScalerState state() const;

  /// Continues from a state, at the beginning of a step; recorded steps continue from it, too. Throws UsageError for
  /// values out of range.
  void load_state(const LossScalerState& state);

 private:
  FiniteCheck divide(const std::vector<at::Tensor>& parameters);
  FiniteCheck check_of(const std::vector<at::Tensor>& parameters);
  void require_first_time(const std::vector<at::Tensor>& parameters) const;
  at::Tensor inverse_on(const at::Device& device) const;
  void move_to(const at::Device& device);
  void fill();
  void update_on_device(const at::Tensor& found_inf);

  LossScalerOptions options_;
  LossScalerState state_;  // unless it is on a device
  // Numbers without dimensions on a device, once gradients have been there: in the same memory ever after, which
  // recorded steps read.
  struct {
    at::Tensor scale;         // float32
    at::Tensor finite_steps;  // int32, below growth_interval
    at::Tensor overflows;     // float32
  } on_device_;
  // Since the last update(): the checks, parameters and which check is theirs, optimizers that have stepped.
  std::vector<FiniteCheck> checks_;
  std::unordered_map<const c10::TensorImpl*, std::size_t> unscaled_;
  std::vector<const torch::optim::Optimizer*> stepped_;
  bool reported_ = false;
};

}  // namespace libtrain::optim
