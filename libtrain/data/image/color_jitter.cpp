#include <libtrain/data/image/color_jitter.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include <libtrain/data/image/color.hpp>
#include <libtrain/data/image/random_draws.hpp>

namespace libtrain::data {

namespace {

void check(double extent, double largest, const char* what) {
  check_interval({extent, extent}, 0, largest, what);
}

std::optional<double> draw_factor(double extent, SampleRandom& random) {
  if (extent == 0) return std::nullopt;
  return uniform({std::max(0.0, 1 - extent), 1 + extent}, random);
}

void apply_change(ColorChange change, const ColorJitter& jitter, Image& image) {
  switch (change) {
    case ColorChange::brightness:
      if (jitter.brightness) adjust_brightness(image, *jitter.brightness);
      return;
    case ColorChange::contrast:
      if (jitter.contrast) adjust_contrast(image, *jitter.contrast);
      return;
    case ColorChange::saturation:
      if (jitter.saturation) adjust_saturation(image, *jitter.saturation);
      return;
    case ColorChange::hue:
      if (jitter.hue) adjust_hue(image, *jitter.hue);
      return;
  }
}

}  // namespace

ColorJitter draw_color_jitter(const ColorJitterOptions& options, SampleRandom& random) {
  constexpr double kUnbounded = std::numeric_limits<double>::max();
  check(options.brightness, kUnbounded, "jitter of brightness");
  check(options.contrast, kUnbounded, "jitter of contrast");
  check(options.saturation, kUnbounded, "jitter of saturation");
  check(options.hue, 0.5, "jitter of hue");

  ColorJitter jitter;
  // Fisher and Yates: the same numbers everywhere, which std::shuffle does not promise.
  for (std::size_t left = jitter.order.size(); left > 1; --left) {
    const auto chosen = static_cast<std::size_t>(random.integer(0, static_cast<int>(left) - 1));
    std::swap(jitter.order[left - 1], jitter.order[chosen]);
  }
  jitter.brightness = draw_factor(options.brightness, random);
  jitter.contrast = draw_factor(options.contrast, random);
  jitter.saturation = draw_factor(options.saturation, random);
  if (options.hue != 0) jitter.hue = uniform({-options.hue, options.hue}, random);
  return jitter;
}

void apply_color_jitter(const ColorJitter& jitter, Image& image) {
  for (const ColorChange change : jitter.order) apply_change(change, jitter, image);
}

}  // namespace libtrain::data
