#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace libtrain::models::detail {

/// One axis of an ROIAlign. The average of a bin's bilinear samples is a product: the weights of the rows times those
/// of the columns. For each bin these are the weights of consecutive cells of the map along the axis.
template <typename T>
struct AxisBins {
  struct Bin {
    std::int64_t first = 0;  ///< cell
    std::int64_t cells = 0;  ///< 0 if all samples are outside of the map
    std::size_t weights = 0;
  };

  std::vector<Bin> bins = {};
  std::vector<T> weights = {};  ///< from Bin::weights on, for each cell
  std::int64_t begin = 0;       ///< the cells of all bins
  std::int64_t end = 0;

  /// Splits `start` to `end` (cells of a map of `length` cells, fractions) into bins with `sampling_ratio` samples
  /// each, or as many as a bin has cells if that is 0. A box narrower than a cell counts as one cell, and samples up to
  /// one cell outside of the map as at its border: all as in torchvision's roi_align(aligned=False).
  void place(T from, T to, std::int64_t count, std::int64_t sampling_ratio, std::int64_t length) {
    bins.assign(static_cast<std::size_t>(count), {});
    weights.clear();
    begin = end = 0;
    const T bin_size = std::max(to - from, T(1)) / static_cast<T>(count);
    if (!(bin_size <= T(1e9))) return;  // infinite or NaN: no sample is inside
    const std::int64_t samples = sampling_ratio > 0 ? sampling_ratio : static_cast<std::int64_t>(std::ceil(bin_size));
    const T weight = T(1) / static_cast<T>(std::max<std::int64_t>(samples, 1));
    for (std::int64_t number = 0; number < count; ++number) {
      Bin& bin = bins[static_cast<std::size_t>(number)];
      bin.weights = weights.size();
      for (std::int64_t sample = 0; sample < samples; ++sample) {
        const T at = from + static_cast<T>(number) * bin_size +
                     (static_cast<T>(sample) + T(0.5)) * bin_size / static_cast<T>(samples);
        if (!(at >= T(-1) && at <= static_cast<T>(length))) continue;  // also if it is NaN
        const T inside = std::max(at, T(0));
        const auto low = std::min(static_cast<std::int64_t>(inside), length - 1);
        const T to_high = low == length - 1 ? T(0) : inside - static_cast<T>(low);
        add(bin, low, (T(1) - to_high) * weight);
        if (low + 1 < length) add(bin, low + 1, to_high * weight);
      }
      if (bin.cells == 0) continue;
      begin = end == 0 ? bin.first : std::min(begin, bin.first);
      end = std::max(end, bin.first + bin.cells);
    }
  }

 private:
  // Samples rise, so that a bin grows at its end only.
  void add(Bin& bin, std::int64_t cell, T weight) {
    if (bin.cells == 0) bin.first = cell;
    bin.cells = std::max(bin.cells, cell - bin.first + 1);
    weights.resize(bin.weights + static_cast<std::size_t>(bin.cells));
    weights[bin.weights + static_cast<std::size_t>(cell - bin.first)] += weight;
  }
};

}  // namespace libtrain::models::detail
