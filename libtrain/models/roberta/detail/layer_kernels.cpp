#include <libtrain/models/roberta/detail/layer_kernels.hpp>

#include <algorithm>
#include <cmath>

#include <libtrain/models/roberta/detail/lanes.hpp>

namespace libtrain::models::detail {

namespace {

LIBTRAIN_INLINED std::uint32_t number_of(std::int64_t place) {
  return static_cast<std::uint32_t>(place);
}

template <typename T>
LIBTRAIN_INLINED void norm_each(const NormRows<T>& rows, std::int64_t first, std::int64_t last) {
  const DropLanes drop(rows.dropout);
  const bool drops = rows.dropout.probability > 0;
  const auto width = rows.width;
  const float share = 1 / static_cast<float>(width);
  for (std::int64_t row = first; row < last; ++row) {
    const auto begin = row * width;
    T* sums = rows.sums + begin;
    Lanes total{};
    for (std::int64_t k = 0; k < width; k += kLanes) {
      Lanes added = load(rows.values + begin + k) + load(rows.bias + k);
      if (drops) added *= drop.at(number_of(begin + k));
      store(sums + k, added + load(rows.residual + begin + k));
      total += load(sums + k);  // as it is rounded, for the backward pass
    }
    const float mean = sum(total) * share;
    Lanes squares{};
    for (std::int64_t k = 0; k < width; k += kLanes) {
      const Lanes difference = load(sums + k) - mean;
      squares += difference * difference;
    }
    const float inverse = 1 / std::sqrt(sum(squares) * share + static_cast<float>(rows.epsilon));
    for (std::int64_t k = 0; k < width; k += kLanes) {
      const Lanes normed = (load(sums + k) - mean) * inverse;
      store(rows.outputs + begin + k, normed * load(rows.scale + k) + load(rows.shift + k));
    }
    rows.means[row] = mean;
    rows.inverse_deviations[row] = inverse;
  }
}

template <typename T>
LIBTRAIN_INLINED void norm_gradient_each(const NormGradientRows<T>& rows, std::int64_t first, std::int64_t last) {
  const DropLanes drop(rows.dropout);
  const auto width = rows.width;
  const float share = 1 / static_cast<float>(width);
  float* to_scale = rows.to_parameters;
  float* to_shift = to_scale + width;
  float* to_bias = to_shift + width;
  for (std::int64_t row = first; row < last; ++row) {
    const auto begin = row * width;
    const float mean = rows.means[row];
    const float inverse = rows.inverse_deviations[row];
    const auto normed_at = [&](std::int64_t k) __attribute__((always_inline)) {
      return (load(rows.sums + begin + k) - mean) * inverse;
    };
    Lanes total{}, product{};
    for (std::int64_t k = 0; k < width; k += kLanes) {
      const Lanes gradient = load(rows.gradients + begin + k);
      const Lanes normed = normed_at(k);
      store(to_scale + k, load(to_scale + k) + gradient * normed);
      store(to_shift + k, load(to_shift + k) + gradient);
      const Lanes scaled = gradient * load(rows.scale + k);
      total += scaled;
      product += scaled * normed;
    }
    const float mean_gradient = sum(total) * share;
    const float mean_product = sum(product) * share;
    for (std::int64_t k = 0; k < width; k += kLanes) {
      const Lanes scaled = load(rows.gradients + begin + k) * load(rows.scale + k);
      Lanes result = (scaled - mean_gradient - normed_at(k) * mean_product) * inverse;
      store(rows.to_residual + begin + k, result);
      if (rows.to_values != nullptr) {
        result *= drop.at(number_of(begin + k));
        store(rows.to_values + begin + k, result);
      }
      store(to_bias + k, load(to_bias + k) + result);
    }
  }
}

template <typename T>
LIBTRAIN_INLINED void gelu_each(const T* values, const float* bias, T* outputs, std::int64_t width, std::int64_t first,
                                std::int64_t last) {
  for (std::int64_t row = first; row < last; ++row) {
    const auto begin = row * width;
    for (std::int64_t k = 0; k < width; k += kLanes) {
      const Lanes x = load(values + begin + k) + load(bias + k);
      store(outputs + begin + k, x * normal(x).integral);
    }
  }
}

template <typename T>
LIBTRAIN_INLINED void gelu_gradient_each(const T* values, const float* bias, T* outputs, T* gradients, float* to_bias,
                                         std::int64_t width, std::int64_t first, std::int64_t last) {
  for (std::int64_t row = first; row < last; ++row) {
    const auto begin = row * width;
    for (std::int64_t k = 0; k < width; k += kLanes) {
      const Lanes x = load(values + begin + k) + load(bias + k);
      const Normal at_x = normal(x);
      store(outputs + begin + k, x * at_x.integral);
      const Lanes gradient = load(gradients + begin + k) * (at_x.integral + x * at_x.density);
      store(gradients + begin + k, gradient);
      store(to_bias + k, load(to_bias + k) + gradient);
    }
  }
}

// G. Box and M. Muller, A Note on the Generation of Random Normal Deviates, 1958: two numbers of two uniform ones.
LIBTRAIN_INLINED void normal_pair(float* numbers, RandomBits bits, std::uint32_t number, float deviation) {
  const auto uniform = [&](std::int64_t offset) __attribute__((always_inline)) {
    const auto integers = reinterpret_cast<IntLanes>(bits.at(number + number_of(offset)) >> 8);
    return __builtin_convertvector(integers, Lanes) * 0x1p-24f;  // [0, 1)
  };
  const Lanes logarithms = logarithm(1.0f - uniform(0));
  const Direction angle = direction((uniform(kLanes) - 0.5f) * 6.28318530717958648f);
  float lengths[kLanes];
  store(lengths, logarithms * -2.0f);
  for (float& length : lengths) length = std::sqrt(length) * deviation;
  store(numbers, load(lengths) * angle.cosine);
  store(numbers + kLanes, load(lengths) * angle.sine);
}

}  // namespace

LIBTRAIN_VECTOR_CLONES void normal_numbers(float* numbers, std::int64_t first, std::int64_t count, double deviation,
                                           std::uint64_t key) {
  const RandomBits bits(key);
  std::int64_t k = 0;
  for (; k + 2 * kLanes <= count; k += 2 * kLanes) {
    normal_pair(numbers + k, bits, number_of(first + k), static_cast<float>(deviation));
  }
  if (k == count) return;
  float last[2 * kLanes];
  normal_pair(last, bits, number_of(first + k), static_cast<float>(deviation));
  std::copy_n(last, count - k, numbers + k);
}

LIBTRAIN_VECTOR_CLONES void norm_rows(const NormRows<float>& rows, std::int64_t first, std::int64_t last) {
  norm_each(rows, first, last);
}

LIBTRAIN_VECTOR_CLONES void norm_rows(const NormRows<c10::BFloat16>& rows, std::int64_t first, std::int64_t last) {
  norm_each(rows, first, last);
}

LIBTRAIN_VECTOR_CLONES void norm_gradient_rows(const NormGradientRows<float>& rows, std::int64_t first,
                                               std::int64_t last) {
  norm_gradient_each(rows, first, last);
}

LIBTRAIN_VECTOR_CLONES void norm_gradient_rows(const NormGradientRows<c10::BFloat16>& rows, std::int64_t first,
                                               std::int64_t last) {
  norm_gradient_each(rows, first, last);
}

LIBTRAIN_VECTOR_CLONES void gelu_rows(const float* values, const float* bias, float* outputs, std::int64_t width,
                                      std::int64_t first, std::int64_t last) {
  gelu_each(values, bias, outputs, width, first, last);
}

LIBTRAIN_VECTOR_CLONES void gelu_rows(const c10::BFloat16* values, const float* bias, c10::BFloat16* outputs,
                                      std::int64_t width, std::int64_t first, std::int64_t last) {
  gelu_each(values, bias, outputs, width, first, last);
}

LIBTRAIN_VECTOR_CLONES void gelu_gradient_rows(const float* values, const float* bias, float* outputs, float* gradients,
                                               float* to_bias, std::int64_t width, std::int64_t first,
                                               std::int64_t last) {
  gelu_gradient_each(values, bias, outputs, gradients, to_bias, width, first, last);
}

LIBTRAIN_VECTOR_CLONES void gelu_gradient_rows(const c10::BFloat16* values, const float* bias, c10::BFloat16* outputs,
                                               c10::BFloat16* gradients, float* to_bias, std::int64_t width,
                                               std::int64_t first, std::int64_t last) {
  gelu_gradient_each(values, bias, outputs, gradients, to_bias, width, first, last);
}

}  // namespace libtrain::models::detail
