#pragma once

#include <libtrain/data/image/image.hpp>

namespace libtrain::data {

/// Maps coordinates of the result to coordinates of the source, in pixels from the top left corner, as Pillow's
/// Image.transform(AFFINE): (x, y) is read at (a x + b y + c, d x + e y + f).
struct AffineMatrix {
  double a = 1;
  double b = 0;
  double c = 0;
  double d = 0;
  double e = 1;
  double f = 0;
};

/// The shear of torchvision's affine for TrivialAugment: x is read at x + amount * y; (0, 0) is fixed.
AffineMatrix shear_x_matrix(double amount);

/// The same for y, which is read at y + amount * x.
AffineMatrix shear_y_matrix(double amount);

/// Moves the image to the right by `x` and down by `y` pixels.
AffineMatrix translation_matrix(int x, int y);

/// Rotates an image of this size counter-clockwise around its centre, as Pillow's Image.rotate.
AffineMatrix rotation_matrix(double degrees, int width, int height);

/// Transforms the image in its size: each pixel is the source pixel that contains the mapped centre (nearest
/// neighbour), or `fill` if that is outside. Bit-identical to Pillow's affine_fixed (16.16 fixed point) for sides of up
/// to 32767 pixels. Throws UsageError for an empty image, for an image whose size does not match its bytes, and for
/// factors (a, b, d, e) above 32768 or offsets above 2^31 in magnitude, or not finite.
void affine(Image& image, const AffineMatrix& matrix, const FillColor& fill = {0, 0, 0});

}  // namespace libtrain::data
