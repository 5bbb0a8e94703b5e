#pragma once

#include <cstddef>
#include <cstdint>

namespace libtrain::detail {

// Optimizer steps on flat memory, in one pass where tensor operators need up to nine.
//
// Elements are computed in their own type, with factors that are computed in double and rounded once, as in torch. An
// element's new bits depend only on its old values and the step: not on the begin or end of a slice, and not on the
// processor, since no product is fused with a sum (the sources are compiled with -ffp-contract=off). Slices of one
// memory may therefore be updated separately, on any thread or rank. Arguments must not overlap.

/// One step of SGD.
struct SgdStep {
  double learning_rate = 0;
  double momentum = 0;      ///< 0: no momentum buffer is needed
  double dampening = 0;     ///< 0 with nesterov
  double weight_decay = 0;  ///< of the L2 kind: added to the gradient
  bool nesterov = false;
  bool first = false;  ///< the momentum buffer is not initialised, and only written
};

/// torch.optim.SGD, with p for parameter, b for momentum buffer:
///
///     d = gradient + weight_decay p
///     b = d in the first step, momentum b + (1 - dampening) d in others
///     p = p - learning_rate (d without momentum, b with, d + momentum b with nesterov)
///
/// Throws UsageError if `momentum_buffer` is null and momentum is not 0.
void sgd_update(float* parameter, const float* gradient, float* momentum_buffer, std::size_t count,
                const SgdStep& step);
void sgd_update(double* parameter, const double* gradient, double* momentum_buffer, std::size_t count,
                const SgdStep& step);

/// One step of AdamW, or of LAMB.
struct AdamWStep {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;  ///< decoupled from the gradient
  std::int64_t step = 1;       ///< counted from 1, for the bias corrections
};

/// torch.optim.AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019), with m and v for the
/// moments, which are 0 before the first step:
///
///     p = (1 - learning_rate weight_decay) p
///     m = beta1 m + (1 - beta1) gradient
///     v = beta2 v + (1 - beta2) gradient^2
///     p = p - learning_rate / (1 - beta1^step) m / (sqrt(v) / sqrt(1 - beta2^step) + epsilon)
///
/// Throws UsageError for a step below 1.
void adamw_update(float* parameter, const float* gradient, float* first_moment, float* second_moment, std::size_t count,
                  const AdamWStep& step);
void adamw_update(double* parameter, const double* gradient, double* first_moment, double* second_moment,
                  std::size_t count, const AdamWStep& step);

/// One step of LARS for one tensor.
struct LarsStep {
  double rate = 0;      ///< learning rate times trust ratio
  double momentum = 0;  ///< 0: no velocity is needed
  double weight_decay = 0;
};

/// v = momentum v + rate (gradient + weight_decay p); p = p - v. The velocity v is 0 before the first step. Throws
/// UsageError if it is null and momentum is not 0.
void lars_update(float* parameter, const float* gradient, float* velocity, std::size_t count, const LarsStep& step);
void lars_update(double* parameter, const double* gradient, double* velocity, std::size_t count, const LarsStep& step);

/// Sums over the elements of a call; the sums of slices are to be added.
struct LambSums {
  double parameter = 0;  ///< of squares of p
  double update = 0;     ///< of squares of u
};

/// The first half of a step of LAMB: moments m and v as in adamw_update, and sums over p and
///
///     u = m / (1 - beta1^step) / (sqrt(v) / sqrt(1 - beta2^step) + epsilon) + weight_decay p
///
/// Throws UsageError for a step below 1.
LambSums lamb_moments(const float* parameter, const float* gradient, float* first_moment, float* second_moment,
                      std::size_t count, const AdamWStep& step);
LambSums lamb_moments(const double* parameter, const double* gradient, double* first_moment, double* second_moment,
                      std::size_t count, const AdamWStep& step);

/// The second half: p = p - learning_rate trust u.
void lamb_update(float* parameter, const float* first_moment, const float* second_moment, std::size_t count,
                 const AdamWStep& step, double trust);
void lamb_update(double* parameter, const double* first_moment, const double* second_moment, std::size_t count,
                 const AdamWStep& step, double trust);

}  // namespace libtrain::detail
