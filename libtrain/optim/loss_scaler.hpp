#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

namespace libtrain::optim {

/// What to do with gradients that are float16 themselves, because the parameters are.
enum class Float16Gradients {
  refused,  ///< UsageError, as in PyTorch: divided by the scale, what scaling had saved underflows again
  allowed,  ///< they are divided all the same, such as for an optimizer that cannot do with scaled ones
};

struct LossScalerOptions {
  double initial_scale = 65536;         ///< rounded to float32, as every later scale is; powers of 2 lose no bit
  double growth_factor = 2;             ///< 1 or more; 1, with a backoff_factor of 1, is a static loss scale
  double backoff_factor = 0.5;          ///< more than 0, at most 1
  std::int64_t growth_interval = 2000;  ///< steps without overflow, in a row, before the scale grows; 1 or more
  double minimum_scale = 1;             ///< the scale never falls below; more than 0, at most initial_scale
  Float16Gradients float16_gradients = Float16Gradients::refused;
};

/// What a checkpoint keeps of a LossScaler.
struct LossScalerState {
  double scale = 65536;
  std::int64_t finite_steps = 0;  ///< steps without overflow since the scale last changed
  std::int64_t overflows = 0;     ///< steps with overflow, in a row: many at the minimum scale mean a run that diverged
};

/// Dynamic loss scaling for float16: the loss is multiplied so that small gradients do not underflow, gradients are
/// divided before the step, and a step whose gradients hold NaN or infinity is skipped and lowers the scale.
/// Micikevicius et al., "Mixed Precision Training", ICLR 2018, section 3.2; the scale's course is that of
/// torch.amp.GradScaler.
///
///     scaler.scale(loss).backward();
///     synchronizer.wait();                       // averages first
///     scaler.unscale(optimizer);                 // needed only by what reads gradients, such as clipping
///     optim::clip_gradients(model->parameters(), {.max_norm = 1});
///     scaler.step(optimizer);                    // unscales where unscale() was not called
///     scaler.update();
///     synchronizer.zero_grad();
///
/// Every rank comes to the same decision without a message, because NaN or infinity of any rank is in every rank's
/// average. That holds after GradientSynchronizer::wait() only, which has to come first, and with
/// NonFinite::unchecked; with NonFinite::skipped the gradients are gone, and report_overflow() stands for them:
///
///     if (!synchronizer.wait()) scaler.report_overflow();
///
/// A rank that join()s others' rounds must call step() and update() in them, too. Several optimizers may step before
/// one update(), each skipped by its own gradients alone; all use the same scale. One thread.
class LossScaler {
 public:
  /// Throws UsageError for options out of their range.
  explicit LossScaler(const LossScalerOptions& options = {});

  /// `loss` times the scale, in float32 where it is float16 or bfloat16; any shape, of a floating dtype, or UsageError.
  at::Tensor scale(const at::Tensor& loss) const;

  /// Divides the gradients of all the optimizer's parameters by the scale, in place, and looks for NaN and infinity in
  /// the same pass; whether there is none. Parameters without a gradient are skipped. Where gradients are on a GPU, it
  /// waits for the current stream. Throws UsageError where a parameter has been unscaled since the last update(), where
  /// no parameter has a gradient, and for gradients that gradient_norm() or Float16Gradients refuses.
  bool unscale(const torch::optim::Optimizer& optimizer);

  /// The same for parameters that no torch::optim::Optimizer holds: step with them only if it returns true.
  bool unscale(const std::vector<at::Tensor>& parameters);

  /// Counts the coming step as one with overflow, found by others than unscale(), which then touches no gradient:
  /// until update(), unscale() and step() return false.
  void report_overflow();

  /// Unscales what has not been unscaled since the last update(), then calls `optimizer.step()` if all gradients are
  /// finite; whether it did. Throws UsageError where it has been called for this optimizer since the last update(), and
  /// as unscale() does.
  bool step(torch::optim::Optimizer& optimizer);

  /// Ends the step: lowers the scale where there was an overflow since the last update(), raises it after
  /// growth_interval steps without. Throws UsageError where nothing has been unscaled or reported.
  void update();

  /// For logs, and for checkpoints between update() and the next backward().
  const LossScalerState& state() const { return state_; }

  /// Goes on from a state, at the beginning of a step. Throws UsageError for values that no state has.
  void load_state(const LossScalerState& state);

 private:
  bool divide(const std::vector<at::Tensor>& parameters);

  LossScalerOptions options_;
  LossScalerState state_;
  // Of the step that update() will end: parameters and whether they were finite, optimizers that have stepped.
  std::unordered_map<const c10::TensorImpl*, bool> unscaled_;
  std::vector<const torch::optim::Optimizer*> stepped_;
  bool reported_ = false;
};

}  // namespace libtrain::optim
