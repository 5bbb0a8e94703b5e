#include <libtrain/data/image/resize.hpp>

#include <algorithm>
#include <array>
#include <cmath>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
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

ByteNormalization byte_normalization(const Normalization& normalization, std::size_t channel) {
  const float mean = normalization.mean[channel];
  const float deviation = normalization.standard_deviation[channel];
  if (!std::isfinite(mean) || !std::isfinite(deviation) || deviation <= 0) {
    throw UsageError(text("Channel ", channel, " is normalised with mean ", mean, " and standard deviation ", deviation,
                          "; both must be finite and the second positive."));
  }
  return {.mean = static_cast<float>(255.0 * mean), .factor = static_cast<float>(1.0 / (255.0 * deviation))};
}

}  // namespace libtrain::data::detail

namespace libtrain::data {

namespace {

using detail::kLanes;

constexpr std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

template <typename T>
void grow(std::vector<T>& values, std::size_t count) {
  if (values.size() < count) values.resize(count);
}

void check_images(const ImageView& source, const PixelTarget& target) {
  if (source.pixels == nullptr || source.width < 1 || source.height < 1) {
    throw UsageError(text("An image of ", source.width, " x ", source.height,
                          " pixels cannot be resized; it must have at least one pixel, in memory."));
  }
  if (source.channels != 1 && source.channels != 3) {
    throw UsageError(text("An image to resize has ", source.channels, " channels; it must have 1 or 3."));
  }
  if (target.channels != source.channels) {
    throw UsageError(text("An image of ", source.channels, " channels cannot be resized to one of ", target.channels,
                          "; they must have the same number of channels."));
  }
  if (target.pixels == nullptr || target.width < 1 || target.height < 1) {
    throw UsageError(text("An image cannot be resized to ", target.width, " x ", target.height,
                          " pixels; there must be at least one pixel, and memory for it."));
  }
}

void check_window(int begin, int count, int size, const char* what) {
  if (size < 1 || begin < 0 || begin > size - count) {
    throw UsageError(text("The target is ", what, " ", begin, " to ", begin, " + ", count, " of a resized image of ",
                          size, " ", what, "; it must be inside of it."));
  }
}

// Negated, so that NaN is refused.
void check_interval(float begin, float end, int size, const char* what) {
  if (!(begin >= 0 && begin < end && end <= static_cast<float>(size))) {
    throw UsageError(text("The box of a resize goes from ", what, " ", begin, " to ", end,
                          "; it must be inside the image, whose size is ", size, ", and not be empty."));
  }
}

struct Size {
  int width = 0;
  int height = 0;
};

struct Axes {
  detail::ResizeAxis horizontal = {};
  detail::ResizeAxis vertical = {};
};

Axes axes_of(const Size& image, const ResizeOptions& options, const Size& target) {
  const int width = options.width != 0 ? options.width : target.width;
  const int height = options.height != 0 ? options.height : target.height;
  check_window(options.x, target.width, width, "columns");
  check_window(options.y, target.height, height, "rows");
  const ResizeBox whole{.right = static_cast<float>(image.width), .bottom = static_cast<float>(image.height)};
  const ResizeBox box = options.box.value_or(whole);
  check_interval(box.left, box.right, image.width, "column");
  check_interval(box.top, box.bottom, image.height, "row");
  return {.horizontal = {.source_size = image.width,
                         .begin = box.left,
                         .end = box.right,
                         .output_size = width,
                         .first_output = options.x,
                         .outputs = target.width},
          .vertical = {.source_size = image.height,
                       .begin = box.top,
                       .end = box.bottom,
                       .output_size = height,
                       .first_output = options.y,
                       .outputs = target.height}};
}

struct Range {  // of elements in one direction
  int first = 0;
  int count = 0;
};

Range needed_by(const detail::ResizeWeights& weights) {
  return {.first = weights.first(), .count = static_cast<int>(weights.source_count())};
}

// Begins and ends grow with the output, so that the first and the last output are enough.
Range needed_along(detail::ResizeAxis axis) {
  detail::ResizeWeights weights;
  const int last_output = axis.first_output + axis.outputs - 1;
  axis.outputs = 1;
  weights.compute(axis);
  const Range first = needed_by(weights);
  axis.first_output = last_output;
  weights.compute(axis);
  const Range last = needed_by(weights);
  return {.first = first.first, .count = last.first + last.count - first.first};
}

void check_part(const Range& needed, const Range& part, int size, const char* what) {
  const bool inside = part.first >= 0 && part.first <= size - part.count;
  if (inside && part.first <= needed.first && needed.first + needed.count <= part.first + part.count) return;
  throw UsageError(text("A resize needs ", what, " ", needed.first, " to ", needed.first, " + ", needed.count,
                        " of an image of ", size, " ", what, ", but the source has only ", what, " ", part.first,
                        " to ", part.first, " + ", part.count, ". Pass the part that needed_source() returns."));
}

ImageView needed_of(const ImageView& source, const SourcePart& part, const Range& columns, const Range& rows) {
  check_part(columns, {.first = part.x, .count = source.width}, part.width, "columns");
  check_part(rows, {.first = part.y, .count = source.height}, part.height, "rows");
  const std::ptrdiff_t left = columns.first - part.x;
  return {.pixels = source.row(rows.first - part.y) + left * source.channels,
          .width = columns.count,
          .height = rows.count,
          .channels = source.channels,
          .row_stride = source.row_stride};
}

}  // namespace

Crop needed_source(int width, int height, const ResizeOptions& options, int target_width, int target_height) {
  if (width < 1 || height < 1 || target_width < 1 || target_height < 1) {
    throw UsageError(text("An image of ", width, " x ", height, " pixels cannot be resized to ", target_width, " x ",
                          target_height, "; both must have at least one pixel."));
  }
  const Axes axes = axes_of({width, height}, options, {target_width, target_height});
  const Range columns = needed_along(axes.horizontal);
  const Range rows = needed_along(axes.vertical);
  return {.x = columns.first, .y = rows.first, .width = columns.count, .height = rows.count};
}

void Resizer::resize(const ImageView& source, const ResizeOptions& options, const PixelTarget& target) {
  check_images(source, target);
  const SourcePart part = options.part.value_or(SourcePart{.width = source.width, .height = source.height});
  const Axes axes = axes_of({part.width, part.height}, options, {target.width, target.height});
  horizontal_.compute(axes.horizontal);
  vertical_.compute(axes.vertical);
  const ImageView needed = needed_of(source, part, needed_by(horizontal_), needed_by(vertical_));
  reserve(target);
  if (target.type != PixelType::uint8) prepare_normalization(options.normalization, target);

  // A row is written as soon as the horizontal pass has finished its last source row, while that is in the cache.
  const std::size_t rows = vertical_.source_count();
  std::size_t written = 0;
  for (std::size_t done = 0; done < rows;) {
    resample_rows(needed, options.flip, target, done);
    done = std::min(done + kLanes, rows);
    while (written < vertical_.outputs() && std::min(vertical_.begins()[written] + vertical_.taps(), rows) <= done) {
      write_row(written++, target);
    }
  }
}

void Resizer::reserve(const PixelTarget& target) {
  const auto channels = static_cast<std::size_t>(target.channels);
  row_elements_ = static_cast<std::size_t>(target.width) * channels;
  grow(columns_, round_up(horizontal_.extent() * channels, detail::kTransposeTile) * kLanes);
  grow(resampled_, row_elements_ * kLanes);
  grow(rows_, std::max(round_up(vertical_.source_count(), kLanes), vertical_.extent()) * row_elements_);
  grow(line_, row_elements_);
  grow(mean_, row_elements_);
  grow(factor_, row_elements_);
}

void Resizer::prepare_normalization(const Normalization& normalization, const PixelTarget& target) {
  const auto channels = static_cast<std::size_t>(target.channels);
  const auto width = static_cast<std::size_t>(target.width);
  for (std::size_t channel = 0; channel < channels; ++channel) {
    const auto [mean, factor] = detail::byte_normalization(normalization, channel);
    for (std::size_t x = 0; x < width; ++x) {
      const std::size_t element = target.layout == Layout::nhwc ? x * channels + channel : channel * width + x;
      mean_[element] = mean;
      factor_[element] = factor;
    }
  }
}

void Resizer::resample_rows(const ImageView& source, Flip flip, const PixelTarget& target, std::size_t first) {
  const auto channels = static_cast<std::size_t>(source.channels);
  std::array<const std::uint8_t*, kLanes> rows{};
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    // Lanes beyond the last row repeat it; their results are not used.
    const std::size_t row = std::min(first + lane, vertical_.source_count() - 1);
    rows[lane] = source.row(static_cast<int>(row));
  }
  detail::rows_to_columns(rows, horizontal_.source_count() * channels, columns_.data());

  const std::size_t pixel_bytes = channels * kLanes;
  const auto step = static_cast<std::ptrdiff_t>(pixel_bytes);
  const std::ptrdiff_t last = (static_cast<std::ptrdiff_t>(target.width) - 1) * step;
  const bool mirrored = flip == Flip::horizontal;
  detail::resample({.from = columns_.data(),
                    .from_stride = pixel_bytes,
                    .begins = horizontal_.begins(),
                    .weights = horizontal_.weights(),
                    .taps = horizontal_.taps(),
                    .outputs = horizontal_.outputs(),
                    .to = resampled_.data() + (mirrored ? last : 0),
                    .to_stride = mirrored ? -step : step,
                    .count = pixel_bytes});

  std::uint8_t* to = rows_.data() + first * row_elements_;
  if (target.layout == Layout::nhwc) {
    return detail::columns_to_rows(resampled_.data(), kLanes, row_elements_, to, row_elements_);
  }
  const auto width = static_cast<std::size_t>(target.width);
  for (std::size_t channel = 0; channel < channels; ++channel) {
    detail::columns_to_rows(resampled_.data() + channel * kLanes, pixel_bytes, width, to + channel * width,
                            row_elements_);
  }
}

void Resizer::write_row(std::size_t y, const PixelTarget& target) {
  detail::resample({.from = rows_.data(),
                    .from_stride = row_elements_,
                    .begins = vertical_.begins() + y,
                    .weights = vertical_.weights() + y * vertical_.taps(),
                    .taps = vertical_.taps(),
                    .outputs = 1,
                    .to = line_.data(),
                    .to_stride = 0,
                    .count = row_elements_});
  const int parts = target.layout == Layout::nhwc ? 1 : target.channels;
  const std::size_t count = row_elements_ / static_cast<std::size_t>(parts);
  for (int part = 0; part < parts; ++part) {
    const std::size_t begin = static_cast<std::size_t>(part) * count;
    detail::normalize(line_.data() + begin, mean_.data() + begin, factor_.data() + begin, count, target.type,
                      target.at(part, static_cast<int>(y), 0));
  }
}

}  // namespace libtrain::data
