#pragma once

#include <libtrain/data/image/image.hpp>

namespace libtrain::data {

/// From places in the result to places in the source, in pixels from the top left corner, as Pillow's
/// Image.transform(AFFINE): (x, y) comes from (a x + b y + c, d x + e y + f).
struct AffineMatrix {
  double a = 1;
  double b = 0;
  double c = 0;
  double d = 0;
  double e = 1;
  double f = 0;
};

/// What torchvision's affine takes for TrivialAugment: x comes from x + amount * y, with (0, 0) staying in its place.
AffineMatrix shear_x_matrix(double amount);

/// The same for y, which comes from y + amount * x.
AffineMatrix shear_y_matrix(double amount);

/// Moves the picture to the right by `x` and down by `y` pixels.
AffineMatrix translation_matrix(int x, int y);

/// Turns a picture of this size counter-clockwise around its centre, as Pillow's Image.rotate.
AffineMatrix rotation_matrix(double degrees, int width, int height);

/// Replaces the picture by one of the same size: each pixel is the source's at the place its centre comes from, rounded
/// down (nearest neighbour), and `fill` where that is outside. In 16.16 fixed point as Pillow's affine_fixed, bit by
/// bit for pictures of up to 32767 pixels a side. Throws UsageError for an empty picture, or one whose size does not
/// fit its bytes, and for factors (a, b, d, e) beyond 32768 or offsets beyond 2^31 in magnitude, or not finite.
void affine(Image& image, const AffineMatrix& matrix, const FillColor& fill = {0, 0, 0});

}  // namespace libtrain::data
