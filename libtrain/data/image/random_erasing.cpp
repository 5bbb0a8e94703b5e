#include <libtrain/data/image/random_erasing.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/numeric/float16.hpp>

namespace libtrain::data {

namespace {

constexpr int kAttempts = 10;

void store(float value, PixelType type, void* to) {
  if (type == PixelType::float32) {
    std::memcpy(to, &value, sizeof value);
    return;
  }
  const auto bits = type == PixelType::float16
                        ? static_cast<std::uint16_t>(libtrain::detail::narrow<libtrain::detail::Float16>(value))
                        : static_cast<std::uint16_t>(libtrain::detail::narrow<libtrain::detail::BFloat16>(value));
  std::memcpy(to, &bits, sizeof bits);
}

void check(const PixelTarget& picture, const Crop& area) {
  if (picture.type == PixelType::uint8) {
    throw UsageError("Random erasing writes normalised values, and the picture's type is uint8; take a float type.");
  }
  if (picture.channels != 1 && picture.channels != 3) {
    throw UsageError(text("A picture to erase from has ", picture.channels, " channels; it must have 1 or 3."));
  }
  if (!lies_inside(area, picture.width, picture.height)) {
    throw UsageError(text("A rectangle of ", area.width, " x ", area.height, " pixels at (", area.x, ", ", area.y,
                          ") cannot be erased from a picture of ", picture.width, " x ", picture.height,
                          "; it must lie inside."));
  }
}

}  // namespace

std::optional<Crop> draw_random_erasing(int width, int height, const RandomErasingOptions& options,
                                        SampleRandom& random) {
  constexpr double kLargest = std::numeric_limits<double>::max();
  check_interval({options.probability, options.probability}, 0, 1, "probability of random erasing");
  check_interval(options.scale, 0, 1, "area of random erasing");
  check_interval(options.ratio, std::numeric_limits<double>::min(), kLargest, "ratio of random erasing");
  if (random.uniform() >= options.probability) return std::nullopt;

  const double picture_area = static_cast<double>(width) * height;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const double area = picture_area * uniform(options.scale, random);
    const double ratio = log_uniform(options.ratio, random);
    const double erased_height = std::nearbyint(std::sqrt(area * ratio));
    const double erased_width = std::nearbyint(std::sqrt(area / ratio));
    if (erased_height >= height || erased_width >= width) continue;
    Crop erased{.width = static_cast<int>(erased_width), .height = static_cast<int>(erased_height)};
    erased.y = random.integer(0, height - erased.height);
    erased.x = random.integer(0, width - erased.width);
    return erased;
  }
  return std::nullopt;
}

void erase(const PixelTarget& picture, const Crop& area, const RandomErasingOptions& options, SampleRandom& random) {
  check(picture, area);
  for (int channel = 0; channel < picture.channels; ++channel) {
    const float constant = options.constant[static_cast<std::size_t>(channel)];
    for (int y = area.y; y < area.y + area.height; ++y) {
      for (int x = area.x; x < area.x + area.width; ++x) {
        const bool drawn = options.value == ErasingValue::normal;
        store(drawn ? static_cast<float>(normal(random)) : constant, picture.type, picture.at(channel, y, x));
      }
    }
  }
}

}  // namespace libtrain::data
