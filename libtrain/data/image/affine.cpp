#include <libtrain/data/image/affine.hpp>

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <numbers>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/image.hpp>

namespace libtrain::data {

namespace {

// So that no product with a width or a height overflows in fixed point.
constexpr double kLargestFactor = 32768.0;
constexpr double kLargestOffset = 2147483648.0;

// As Python's math.radians and math.degrees.
double radians(double degrees) {
  return degrees * (std::numbers::pi / 180.0);
}

double degrees_of(double angle) {
  return angle * (180.0 / std::numbers::pi);
}

// Converts to degrees and back, because torchvision takes the angle in degrees.
double shear_angle(double amount) {
  return radians(degrees_of(std::atan(amount)));
}

// Python's round(value, 15) for values from -1 to 1: rotations by a right angle become exact.
double rounded_to_15_digits(double value) {
  std::array<char, 32> digits{};
  const auto written = std::to_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::fixed, 15);
  double result = 0;
  std::from_chars(digits.data(), written.ptr, result);
  return result;
}

struct FixedMatrix {
  std::int64_t a, b, c, d, e, f;  // in units of 2^-16; c and f for the centre of the first pixel
};

std::int64_t fixed(double value) {
  return static_cast<std::int64_t>(std::floor(value * 65536.0 + 0.5));
}

void check_entries(std::initializer_list<double> entries, double largest) {
  for (const double entry : entries) {
    // Negated, so that NaN is refused.
    if (!(std::abs(entry) <= largest)) {
      throw UsageError(text("The matrix of an affine transform has the entry ", entry,
                            "; factors must be finite and at most 32768 in magnitude, offsets 2147483648."));
    }
  }
}

FixedMatrix fixed(const AffineMatrix& matrix) {
  check_entries({matrix.a, matrix.b, matrix.d, matrix.e}, kLargestFactor);
  check_entries({matrix.c, matrix.f}, kLargestOffset);
  return {fixed(matrix.a), fixed(matrix.b), fixed(matrix.c + matrix.a * 0.5 + matrix.b * 0.5),
          fixed(matrix.d), fixed(matrix.e), fixed(matrix.f + matrix.d * 0.5 + matrix.e * 0.5)};
}

template <std::size_t kChannels>
void fill_from(const Image& source, const FixedMatrix& matrix, const FillColor& fill, std::uint8_t* to) {
  for (std::int64_t y = 0; y < source.height; ++y) {
    std::int64_t from_x = matrix.c + matrix.b * y;
    std::int64_t from_y = matrix.f + matrix.e * y;
    for (int x = 0; x < source.width; ++x) {
      const std::int64_t column = from_x >> 16;
      const std::int64_t row = from_y >> 16;
      const bool inside = column >= 0 && column < source.width && row >= 0 && row < source.height;
      const std::uint8_t* pixel =
          inside ? source.row(static_cast<int>(row)) + static_cast<std::size_t>(column) * kChannels : fill.data();
      for (std::size_t channel = 0; channel < kChannels; ++channel) to[channel] = pixel[channel];
      to += kChannels;
      from_x += matrix.a;
      from_y += matrix.d;
    }
  }
}

}  // namespace

AffineMatrix shear_x_matrix(double amount) {
  return {.b = std::tan(shear_angle(amount))};
}

AffineMatrix shear_y_matrix(double amount) {
  const double angle = shear_angle(amount);
  return {.d = std::sin(angle) / std::cos(angle)};
}

AffineMatrix translation_matrix(int x, int y) {
  return {.c = -static_cast<double>(x), .f = -static_cast<double>(y)};
}

AffineMatrix rotation_matrix(double degrees, int width, int height) {
  double turned = std::fmod(degrees, 360.0);
  if (turned < 0) turned += 360.0;
  const double angle = -radians(turned);
  AffineMatrix matrix{.a = rounded_to_15_digits(std::cos(angle)),
                      .b = rounded_to_15_digits(std::sin(angle)),
                      .d = rounded_to_15_digits(-std::sin(angle)),
                      .e = rounded_to_15_digits(std::cos(angle))};
  const double center_x = width / 2.0;
  const double center_y = height / 2.0;
  matrix.c = matrix.a * -center_x + matrix.b * -center_y + center_x;
  matrix.f = matrix.d * -center_x + matrix.e * -center_y + center_y;
  return matrix;
}

void affine(Image& image, const AffineMatrix& matrix, const FillColor& fill) {
  detail::require_valid_image(image);
  const FixedMatrix integers = fixed(matrix);
  std::vector<std::uint8_t> pixels(image.pixels.size());
  if (image.channels == 1) {
    fill_from<1>(image, integers, fill, pixels.data());
  } else {
    fill_from<3>(image, integers, fill, pixels.data());
  }
  image.pixels.swap(pixels);
}

}  // namespace libtrain::data
