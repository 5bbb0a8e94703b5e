// AdamW and LAMB. Compiled with -ffp-contract=off, for the same bits in all clones, and in the vectorised part of a
// loop and its rest, and with -fno-math-errno, without which GCC does not vectorise square roots.

#include <libtrain/numeric/detail/optimizer_steps.hpp>

#include <cmath>

#include <libtrain/base/detail/vector_clones.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/numeric/detail/square_lanes.hpp>

namespace libtrain::detail {

namespace {

/// Passed by value to the loops, whose writes then cannot alias it.
template <typename T>
struct AdamFactors {
  T beta1 = 0;
  T gain1 = 0;
  T beta2 = 0;
  T gain2 = 0;
  T scale = 0;       // of the first moment: bias correction, and AdamW's learning rate
  T correction = 0;  // of the second moment's root
  T epsilon = 0;
};

template <typename T>
AdamFactors<T> factors_of(const AdamWStep& step, double learning_rate) {
  if (step.step < 1) throw UsageError(text("AdamWStep::step is ", step.step, "; the first step is 1."));
  const auto number = static_cast<double>(step.step);
  return {.beta1 = static_cast<T>(step.beta1),
          .gain1 = static_cast<T>(1 - step.beta1),
          .beta2 = static_cast<T>(step.beta2),
          .gain2 = static_cast<T>(1 - step.beta2),
          .scale = static_cast<T>(learning_rate / (1 - std::pow(step.beta1, number))),
          .correction = static_cast<T>(std::sqrt(1 - std::pow(step.beta2, number))),
          .epsilon = static_cast<T>(step.epsilon)};
}

template <typename T>
LIBTRAIN_INLINED T next_first(T moment, T gradient, const AdamFactors<T>& factors) {
  return factors.beta1 * moment + factors.gain1 * gradient;
}

template <typename T>
LIBTRAIN_INLINED T next_second(T moment, T gradient, const AdamFactors<T>& factors) {
  return factors.beta2 * moment + factors.gain2 * gradient * gradient;
}

template <typename T>
LIBTRAIN_INLINED T direction(T first, T second, const AdamFactors<T>& factors) {
  return factors.scale * first / (std::sqrt(second) / factors.correction + factors.epsilon);
}

template <typename T>
LIBTRAIN_INLINED void adamw_loop(T* parameter, const T* gradient, T* first, T* second, std::size_t count,
                                 AdamFactors<T> factors, T shrink) {
  for (std::size_t i = 0; i < count; ++i) {
    const T m = next_first(first[i], gradient[i], factors);
    const T v = next_second(second[i], gradient[i], factors);
    first[i] = m;
    second[i] = v;
    parameter[i] = shrink * parameter[i] - direction(m, v, factors);
  }
}

template <typename T>
LIBTRAIN_INLINED void lamb_loop(T* parameter, const T* first, const T* second, std::size_t count,
                                AdamFactors<T> factors, T decay, T rate) {
  for (std::size_t i = 0; i < count; ++i) {
    parameter[i] -= rate * (direction(first[i], second[i], factors) + decay * parameter[i]);
  }
}

/// At most kSquareLanes elements.
template <typename T>
LIBTRAIN_INLINED void moments_loop(const T* parameter, const T* gradient, T* first, T* second, std::size_t count,
                                   AdamFactors<T> factors, T decay, SquareLanes& parameters, SquareLanes& updates) {
  for (std::size_t i = 0; i < count; ++i) {
    const T m = next_first(first[i], gradient[i], factors);
    const T v = next_second(second[i], gradient[i], factors);
    first[i] = m;
    second[i] = v;
    parameters.add(i, parameter[i]);
    updates.add(i, direction(m, v, factors) + decay * parameter[i]);
  }
}

template <typename T>
LIBTRAIN_INLINED LambSums moments_loops(const T* parameter, const T* gradient, T* first, T* second, std::size_t count,
                                        AdamFactors<T> factors, T decay) {
  constexpr auto kLanes = kSquareLanes;
  SquareLanes parameters;
  SquareLanes updates;
  std::size_t begin = 0;
  for (; count - begin >= kLanes; begin += kLanes) {
    moments_loop(parameter + begin, gradient + begin, first + begin, second + begin, kLanes, factors, decay, parameters,
                 updates);
  }
  moments_loop(parameter + begin, gradient + begin, first + begin, second + begin, count - begin, factors, decay,
               parameters, updates);
  return {.parameter = parameters.total(), .update = updates.total()};
}

// The clones. Compilers respect __restrict only in functions that are not inlined.

LIBTRAIN_VECTOR_CLONES void adamw_clones(float* __restrict parameter, const float* __restrict gradient,
                                         float* __restrict first, float* __restrict second, std::size_t count,
                                         AdamFactors<float> factors, float shrink) {
  adamw_loop(parameter, gradient, first, second, count, factors, shrink);
}

LIBTRAIN_VECTOR_CLONES void adamw_clones(double* __restrict parameter, const double* __restrict gradient,
                                         double* __restrict first, double* __restrict second, std::size_t count,
                                         AdamFactors<double> factors, double shrink) {
  adamw_loop(parameter, gradient, first, second, count, factors, shrink);
}

LIBTRAIN_VECTOR_CLONES LambSums moments_clones(const float* __restrict parameter, const float* __restrict gradient,
                                               float* __restrict first, float* __restrict second, std::size_t count,
                                               AdamFactors<float> factors, float decay) {
  return moments_loops(parameter, gradient, first, second, count, factors, decay);
}

LIBTRAIN_VECTOR_CLONES LambSums moments_clones(const double* __restrict parameter, const double* __restrict gradient,
                                               double* __restrict first, double* __restrict second, std::size_t count,
                                               AdamFactors<double> factors, double decay) {
  return moments_loops(parameter, gradient, first, second, count, factors, decay);
}

LIBTRAIN_VECTOR_CLONES void lamb_clones(float* __restrict parameter, const float* __restrict first,
                                        const float* __restrict second, std::size_t count, AdamFactors<float> factors,
                                        float decay, float rate) {
  lamb_loop(parameter, first, second, count, factors, decay, rate);
}

LIBTRAIN_VECTOR_CLONES void lamb_clones(double* __restrict parameter, const double* __restrict first,
                                        const double* __restrict second, std::size_t count, AdamFactors<double> factors,
                                        double decay, double rate) {
  lamb_loop(parameter, first, second, count, factors, decay, rate);
}

}  // namespace

void adamw_update(float* parameter, const float* gradient, float* first_moment, float* second_moment, std::size_t count,
                  const AdamWStep& step) {
  adamw_clones(parameter, gradient, first_moment, second_moment, count, factors_of<float>(step, step.learning_rate),
               static_cast<float>(1 - step.learning_rate * step.weight_decay));
}

void adamw_update(double* parameter, const double* gradient, double* first_moment, double* second_moment,
                  std::size_t count, const AdamWStep& step) {
  adamw_clones(parameter, gradient, first_moment, second_moment, count, factors_of<double>(step, step.learning_rate),
               1 - step.learning_rate * step.weight_decay);
}

LambSums lamb_moments(const float* parameter, const float* gradient, float* first_moment, float* second_moment,
                      std::size_t count, const AdamWStep& step) {
  return moments_clones(parameter, gradient, first_moment, second_moment, count, factors_of<float>(step, 1),
                        static_cast<float>(step.weight_decay));
}

LambSums lamb_moments(const double* parameter, const double* gradient, double* first_moment, double* second_moment,
                      std::size_t count, const AdamWStep& step) {
  return moments_clones(parameter, gradient, first_moment, second_moment, count, factors_of<double>(step, 1),
                        step.weight_decay);
}

void lamb_update(float* parameter, const float* first_moment, const float* second_moment, std::size_t count,
                 const AdamWStep& step, double trust) {
  lamb_clones(parameter, first_moment, second_moment, count, factors_of<float>(step, 1),
              static_cast<float>(step.weight_decay), static_cast<float>(step.learning_rate * trust));
}

void lamb_update(double* parameter, const double* first_moment, const double* second_moment, std::size_t count,
                 const AdamWStep& step, double trust) {
  lamb_clones(parameter, first_moment, second_moment, count, factors_of<double>(step, 1), step.weight_decay,
              step.learning_rate * trust);
}

}  // namespace libtrain::detail
