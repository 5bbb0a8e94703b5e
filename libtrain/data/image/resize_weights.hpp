#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace libtrain::data::detail {

/// One direction of a resize: `output_size` elements from the interval [begin, end) of `source_size` elements; of them,
/// `outputs` from number `first_output` on are wanted.
struct ResizeAxis {
  int source_size = 0;
  float begin = 0;
  float end = 0;
  int output_size = 0;
  int first_output = 0;
  int outputs = 0;
};

/// The weights of Pillow's antialiased bilinear filter: a triangle that reaches max(scale, 1) source elements to either
/// side of an output's centre, cut off at the ends of the source (not of the interval), normalised to a sum of one, and
/// rounded to multiples of 2^-22. The formulas, and the order of their operations, are those of precompute_coeffs and
/// normalize_coeffs_8bpc in Pillow's src/libImaging/Resample.c: the integers are the same.
///
/// Keeps its memory between calls. Used by one thread at a time.
class ResizeWeights {
 public:
  /// The wanted outputs must be among the output_size; 0 <= begin < end <= source_size.
  void compute(const ResizeAxis& axis);

  std::size_t outputs() const { return begins_.size(); }

  /// The first source element that some wanted output needs, and how many from there on are needed.
  int first() const { return first_; }
  std::size_t source_count() const { return source_count_; }

  /// Weights per output, equally many for all (see padded_taps); those beyond an output's own are zero.
  std::size_t taps() const { return taps_; }

  /// By output, the source element of its first weight, counted from first().
  const std::size_t* begins() const { return begins_.data(); }

  /// [outputs()][taps()], in units of 2^-22.
  const std::int32_t* weights() const { return weights_.data(); }

  /// As many source elements, from first() on, are read: more than source_count() where the last weights are zero.
  std::size_t extent() const { return begins_.back() + taps_; }

 private:
  void compute_output(std::size_t output, double center, double inverse_scale, std::size_t begin, std::size_t count);

  int first_ = 0;
  std::size_t source_count_ = 0;
  std::size_t taps_ = 0;
  std::vector<std::size_t> begins_;
  std::vector<std::size_t> counts_;
  std::vector<std::int32_t> weights_;
  std::vector<double> values_;  // of one output, before rounding
};

}  // namespace libtrain::data::detail
