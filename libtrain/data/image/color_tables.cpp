#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/color.hpp>
#include <libtrain/data/image/color_table.hpp>
#include <libtrain/data/image/image_view.hpp>

namespace libtrain::data {

namespace {

using detail::ColorTable;
using Histogram = std::array<std::uint64_t, 256>;

Histogram histogram_of(const Image& image, std::size_t channel) {
  Histogram counts{};
  const auto channels = static_cast<std::size_t>(image.channels);
  for (std::size_t i = channel; i < image.pixels.size(); i += channels) ++counts[image.pixels[i]];
  return counts;
}

ColorTable identity() {
  ColorTable table;
  for (std::size_t value = 0; value < table.size(); ++value) table[value] = static_cast<std::uint8_t>(value);
  return table;
}

ColorTable inverted_from(double threshold) {
  ColorTable table;
  for (std::size_t value = 0; value < table.size(); ++value) {
    table[value] = static_cast<std::uint8_t>(static_cast<double>(value) < threshold ? value : 255 - value);
  }
  return table;
}

// The places of the first and of the last value that occurs.
std::size_t smallest(const Histogram& counts) {
  std::size_t value = 0;
  while (counts[value] == 0) ++value;
  return value;
}

std::size_t largest(const Histogram& counts) {
  std::size_t value = counts.size() - 1;
  while (counts[value] == 0) --value;
  return value;
}

ColorTable stretching(const Histogram& counts) {
  const auto low = static_cast<int>(smallest(counts));
  const auto high = static_cast<int>(largest(counts));
  if (high <= low) return identity();
  const double scale = 255.0 / (high - low);
  const double offset = -low * scale;
  ColorTable table;
  for (std::size_t value = 0; value < table.size(); ++value) {
    const auto stretched = static_cast<int>(static_cast<double>(value) * scale + offset);
    table[value] = static_cast<std::uint8_t>(std::clamp(stretched, 0, 255));
  }
  return table;
}

ColorTable equalizing(const Histogram& counts) {
  std::uint64_t total = 0;
  for (const auto count : counts) total += count;
  // Less than a 255th of the pixels, but for those of the largest value, to each result: nothing to spread.
  const std::uint64_t step = (total - counts[largest(counts)]) / 255;
  if (step == 0) return identity();
  ColorTable table;
  std::uint64_t below = step / 2;
  for (std::size_t value = 0; value < table.size(); ++value) {
    table[value] = static_cast<std::uint8_t>(std::min<std::uint64_t>(below / step, 255));
    below += counts[value];
  }
  return table;
}

template <typename MakeTable>
void apply_by_channel(Image& image, const MakeTable& make_table) {
  detail::require_picture(image);
  const auto channels = static_cast<std::size_t>(image.channels);
  for (std::size_t channel = 0; channel < channels; ++channel) {
    const ColorTable table = make_table(histogram_of(image, channel));
    for (std::size_t i = channel; i < image.pixels.size(); i += channels) image.pixels[i] = table[image.pixels[i]];
  }
}

}  // namespace

void invert(Image& image) {
  detail::require_picture(image);
  detail::apply(image, inverted_from(0));
}

void posterize(Image& image, int bits) {
  detail::require_picture(image);
  if (bits < 1 || bits > 8) throw UsageError(text("A picture cannot keep ", bits, " bits of a byte; 1 to 8 it can."));
  const auto kept = static_cast<std::uint8_t>(0xFF00 >> bits);
  for (auto& byte : image.pixels) byte = static_cast<std::uint8_t>(byte & kept);
}

void solarize(Image& image, double threshold) {
  detail::require_picture(image);
  detail::apply(image, inverted_from(threshold));
}

void autocontrast(Image& image) {
  apply_by_channel(image, stretching);
}

void equalize(Image& image) {
  apply_by_channel(image, equalizing);
}

}  // namespace libtrain::data
