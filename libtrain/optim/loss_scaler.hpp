#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

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
  std::int64_t finite_steps = 0;  ///< steps without overflow since the scale last changed
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
  /// infinity in the same pass; returns whether all are finite. Parameters without a gradient are skipped. If gradients
  /// are on a GPU, it waits for the current stream. Throws UsageError if a parameter has been unscaled since the last
  /// update(), if no parameter has a gradient, and for gradients that gradient_norm() or Float16Gradients refuses.
  bool unscale(const torch::optim::Optimizer& optimizer);

  /// The same for parameters that are not in a torch::optim::Optimizer: step with them only if it returns true.
  bool unscale(const std::vector<at::Tensor>& parameters);

  /// Counts the current step as one with overflow. Until update(), unscale() and step() return false and touch no
  /// gradient.
  void report_overflow();

  /// Unscales parameters that have not been unscaled since the last update(), then calls `optimizer.step()` if all
  /// gradients are finite; returns whether it did. Throws UsageError if it has been called for this optimizer since the
  /// last update(), and as unscale() does.
  bool step(torch::optim::Optimizer& optimizer);

  /// Ends the step: lowers the scale if there was an overflow since the last update(), raises it after growth_interval
  /// steps without one. Throws UsageError if there was no unscale(), step() or report_overflow() since the last
  /// update().
  void update();

  /// For logs, and for checkpoints between update() and the next backward().
  const LossScalerState& state() const { return state_; }

  /// Continues from a state, at the beginning of a step. Throws UsageError for values out of range.
  void load_state(const LossScalerState& state);

 private:
  bool divide(const std::vector<at::Tensor>& parameters);

  LossScalerOptions options_;
  LossScalerState state_;
  // Since the last update(): parameters and whether their gradients were finite, optimizers that have stepped.
  std::unordered_map<const c10::TensorImpl*, bool> unscaled_;
  std::vector<const torch::optim::Optimizer*> stepped_;
  bool reported_ = false;
};

}  // namespace libtrain::optim
