// SGD and LARS. Compiled with -ffp-contract=off, for the same bits in all clones, and in the vectorised part of a loop
// and its rest.

#include <libtrain/numeric/detail/optimizer_steps.hpp>

#include <string_view>

#include <libtrain/base/detail/vector_clones.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

template <typename T>
LIBTRAIN_INLINED void plain_loop(T* parameter, const T* gradient, std::size_t count, T rate, T decay) {
  for (std::size_t i = 0; i < count; ++i) parameter[i] -= rate * (gradient[i] + decay * parameter[i]);
}

template <bool kFirst, bool kNesterov, typename T>
LIBTRAIN_INLINED void momentum_loop(T* parameter, const T* gradient, T* buffer, std::size_t count, SgdStep step) {
  const auto rate = static_cast<T>(step.learning_rate);
  [[maybe_unused]] const auto momentum = static_cast<T>(step.momentum);
  [[maybe_unused]] const auto gain = static_cast<T>(1 - step.dampening);
  const auto decay = static_cast<T>(step.weight_decay);
  for (std::size_t i = 0; i < count; ++i) {
    const T decayed = gradient[i] + decay * parameter[i];
    T kept = decayed;
    if constexpr (!kFirst) kept = momentum * buffer[i] + gain * decayed;
    buffer[i] = kept;
    if constexpr (kNesterov) kept = decayed + momentum * kept;
    parameter[i] -= rate * kept;
  }
}

template <typename T>
LIBTRAIN_INLINED void momentum_loops(T* parameter, const T* gradient, T* buffer, std::size_t count, SgdStep step) {
  if (step.first && step.nesterov) return momentum_loop<true, true>(parameter, gradient, buffer, count, step);
  if (step.first) return momentum_loop<true, false>(parameter, gradient, buffer, count, step);
  if (step.nesterov) return momentum_loop<false, true>(parameter, gradient, buffer, count, step);
  return momentum_loop<false, false>(parameter, gradient, buffer, count, step);
}

template <typename T>
LIBTRAIN_INLINED void lars_loop(T* parameter, const T* gradient, T* velocity, std::size_t count, LarsStep step) {
  const auto rate = static_cast<T>(step.rate);
  const auto momentum = static_cast<T>(step.momentum);
  const auto decay = static_cast<T>(step.weight_decay);
  for (std::size_t i = 0; i < count; ++i) {
    velocity[i] = momentum * velocity[i] + rate * (gradient[i] + decay * parameter[i]);
    parameter[i] -= velocity[i];
  }
}

// The clones. Compilers respect __restrict only in functions that are not inlined.

LIBTRAIN_VECTOR_CLONES void plain_clones(float* __restrict parameter, const float* __restrict gradient,
                                         std::size_t count, float rate, float decay) {
  plain_loop(parameter, gradient, count, rate, decay);
}

LIBTRAIN_VECTOR_CLONES void plain_clones(double* __restrict parameter, const double* __restrict gradient,
                                         std::size_t count, double rate, double decay) {
  plain_loop(parameter, gradient, count, rate, decay);
}

LIBTRAIN_VECTOR_CLONES void momentum_clones(float* __restrict parameter, const float* __restrict gradient,
                                            float* __restrict buffer, std::size_t count, const SgdStep& step) {
  momentum_loops(parameter, gradient, buffer, count, step);
}

LIBTRAIN_VECTOR_CLONES void momentum_clones(double* __restrict parameter, const double* __restrict gradient,
                                            double* __restrict buffer, std::size_t count, const SgdStep& step) {
  momentum_loops(parameter, gradient, buffer, count, step);
}

LIBTRAIN_VECTOR_CLONES void lars_clones(float* __restrict parameter, const float* __restrict gradient,
                                        float* __restrict velocity, std::size_t count, const LarsStep& step) {
  lars_loop(parameter, gradient, velocity, count, step);
}

LIBTRAIN_VECTOR_CLONES void lars_clones(double* __restrict parameter, const double* __restrict gradient,
                                        double* __restrict velocity, std::size_t count, const LarsStep& step) {
  lars_loop(parameter, gradient, velocity, count, step);
}

void require_buffer(const void* buffer, double momentum, std::string_view call) {
  if (buffer == nullptr) throw UsageError(text(call, " with momentum ", momentum, " was given no buffer. Pass one."));
}

template <typename T>
void update_sgd(T* parameter, const T* gradient, T* buffer, std::size_t count, const SgdStep& step) {
  if (step.momentum == 0) {
    return plain_clones(parameter, gradient, count, static_cast<T>(step.learning_rate),
                        static_cast<T>(step.weight_decay));
  }
  if (count > 0) require_buffer(buffer, step.momentum, "sgd_update");
  momentum_clones(parameter, gradient, buffer, count, step);
}

template <typename T>
void update_lars(T* parameter, const T* gradient, T* velocity, std::size_t count, const LarsStep& step) {
  if (step.momentum == 0) {
    return plain_clones(parameter, gradient, count, static_cast<T>(step.rate), static_cast<T>(step.weight_decay));
  }
  if (count > 0) require_buffer(velocity, step.momentum, "lars_update");
  lars_clones(parameter, gradient, velocity, count, step);
}

}  // namespace

void sgd_update(float* parameter, const float* gradient, float* momentum_buffer, std::size_t count,
                const SgdStep& step) {
  update_sgd(parameter, gradient, momentum_buffer, count, step);
}

void sgd_update(double* parameter, const double* gradient, double* momentum_buffer, std::size_t count,
                const SgdStep& step) {
  update_sgd(parameter, gradient, momentum_buffer, count, step);
}

void lars_update(float* parameter, const float* gradient, float* velocity, std::size_t count, const LarsStep& step) {
  update_lars(parameter, gradient, velocity, count, step);
}

void lars_update(double* parameter, const double* gradient, double* velocity, std::size_t count, const LarsStep& step) {
  update_lars(parameter, gradient, velocity, count, step);
}

}  // namespace libtrain::detail
