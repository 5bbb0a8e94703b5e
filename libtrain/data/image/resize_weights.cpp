#include <libtrain/data/image/resize_weights.hpp>

#include <algorithm>
#include <cmath>

#include <libtrain/data/image/detail/resize_kernels.hpp>

namespace libtrain::data::detail {

void ResizeWeights::compute(const ResizeAxis& axis) {
  const auto outputs = static_cast<std::size_t>(axis.outputs);
  const double scale = static_cast<double>(axis.end - axis.begin) / axis.output_size;
  const double support = std::max(scale, 1.0);
  const auto center_of = [&](std::size_t output) {
    return static_cast<double>(axis.begin) + (axis.first_output + static_cast<double>(output) + 0.5) * scale;
  };

  begins_.resize(outputs);
  counts_.resize(outputs);
  std::size_t most = 0;
  for (std::size_t output = 0; output < outputs; ++output) {
    const double center = center_of(output);
    const int begin = std::max(static_cast<int>(center - support + 0.5), 0);
    const int end = std::min(static_cast<int>(center + support + 0.5), axis.source_size);
    begins_[output] = static_cast<std::size_t>(begin);
    counts_[output] = static_cast<std::size_t>(end - begin);
    most = std::max(most, counts_[output]);
  }
  // Begins and ends grow with the output.
  first_ = static_cast<int>(begins_.front());
  source_count_ = begins_.back() + counts_.back() - begins_.front();
  taps_ = padded_taps(most);

  weights_.assign(outputs * taps_, 0);
  values_.resize(std::max(values_.size(), most));
  for (std::size_t output = 0; output < outputs; ++output) {
    compute_output(output, center_of(output), 1.0 / support, begins_[output], counts_[output]);
    begins_[output] -= static_cast<std::size_t>(first_);
  }
}

void ResizeWeights::compute_output(std::size_t output, double center, double inverse_scale, std::size_t begin,
                                   std::size_t count) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double distance = std::abs((static_cast<double>(begin + i) - center + 0.5) * inverse_scale);
    values_[i] = distance < 1.0 ? 1.0 - distance : 0.0;
    sum += values_[i];
  }
  std::int32_t* weights = weights_.data() + output * taps_;
  for (std::size_t i = 0; i < count; ++i) {
    const double weight = sum != 0.0 ? values_[i] / sum : values_[i];
    weights[i] = static_cast<std::int32_t>(0.5 + weight * (1 << kPrecisionBits));
  }
}

}  // namespace libtrain::data::detail
