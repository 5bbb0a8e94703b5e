#include <libtrain/data/image/affine.hpp>

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/data/image/pictures.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using test::pixel;
using test::random_picture;
using test::row_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Image transformed(Image image, const AffineMatrix& matrix, const FillColor& fill = {0, 0, 0}) {
  affine(image, matrix, fill);
  return image;
}

TEST(Affine, IdentityCopies) {
  const Image image = random_picture(13, 8, 3);
  EXPECT_EQ(transformed(image, {}).pixels, image.pixels);
  EXPECT_EQ(transformed(image, rotation_matrix(0, 13, 8)).pixels, image.pixels);
  EXPECT_EQ(transformed(image, rotation_matrix(-720, 13, 8)).pixels, image.pixels);
  EXPECT_EQ(transformed(image, shear_x_matrix(0)).pixels, image.pixels);
  EXPECT_EQ(transformed(image, shear_y_matrix(0)).pixels, image.pixels);
}

TEST(Affine, TranslatesAndFillsWhatIsLeftOpen) {
  const Image row = row_of(1, {1, 2, 3, 4});
  EXPECT_THAT(transformed(row, translation_matrix(1, 0), {9, 0, 0}).pixels, ElementsAre(9, 1, 2, 3));
  EXPECT_THAT(transformed(row, translation_matrix(-3, 0), {9, 0, 0}).pixels, ElementsAre(4, 9, 9, 9));
  EXPECT_THAT(transformed(row, translation_matrix(0, 1), {9, 0, 0}).pixels, ElementsAre(9, 9, 9, 9));
  const Image colors = row_of(3, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(transformed(colors, translation_matrix(1, 0), {7, 8, 9}).pixels, ElementsAre(7, 8, 9, 1, 2, 3));
}

// The pixel of row y, whose centre is at y + 1/2, is read as many pixels further right, rounded down from the centre's
// place: x + 1/2 + (y + 1/2) amount.
TEST(Affine, ShearsAlongTheRows) {
  Image image = random_picture(9, 6, 1);
  const Image sheared = transformed(image, shear_x_matrix(0.5));
  for (int y = 0; y < 6; ++y) {
    for (int x = 0; x < 9; ++x) {
      const int from = static_cast<int>(std::floor(x + 0.5 + (y + 0.5) * 0.5));
      EXPECT_EQ(pixel(sheared, x, y), from < 9 ? pixel(image, from, y) : 0) << x << " " << y;
    }
  }
}

TEST(Affine, ShearsAlongTheColumns) {
  Image image = random_picture(6, 9, 1);
  const Image sheared = transformed(image, shear_y_matrix(-0.3));
  for (int y = 0; y < 9; ++y) {
    for (int x = 0; x < 6; ++x) {
      const int from = static_cast<int>(std::floor(y + 0.5 - (x + 0.5) * 0.3));
      EXPECT_EQ(pixel(sheared, x, y), from >= 0 ? pixel(image, x, from) : 0) << x << " " << y;
    }
  }
}

TEST(Affine, TurnsSquaresExactlyAndCounterClockwise) {
  for (const int size : {7, 8}) {
    const Image image = random_picture(size, size, 3);
    const Image quarter = transformed(image, rotation_matrix(90, size, size));
    const Image half = transformed(image, rotation_matrix(180, size, size));
    const Image three_quarters = transformed(image, rotation_matrix(-90, size, size));
    for (int y = 0; y < size; ++y) {
      for (int x = 0; x < size; ++x) {
        ASSERT_EQ(pixel(quarter, x, y, 1), pixel(image, size - 1 - y, x, 1));
        ASSERT_EQ(pixel(half, x, y, 1), pixel(image, size - 1 - x, size - 1 - y, 1));
        ASSERT_EQ(pixel(three_quarters, x, y, 1), pixel(image, y, size - 1 - x, 1));
      }
    }
  }
}

TEST(Affine, RefusesMatricesItCannotRepresent) {
  Image image = random_picture(2, 2, 1);
  EXPECT_THAT(message_of<UsageError>([&] { affine(image, {.a = std::nan("")}); }), HasSubstr("nan"));
  EXPECT_THAT(message_of<UsageError>([&] { affine(image, {.c = 1e10}); }), HasSubstr("1e+10"));
  EXPECT_THAT(message_of<UsageError>([&] { affine(image, shear_x_matrix(1e6)); }), HasSubstr("32768"));
  Image empty;
  EXPECT_THAT(message_of<UsageError>([&] { affine(empty, {}); }), HasSubstr("0 x 0"));
  EXPECT_THAT(transformed(row_of(1, {1, 2}), translation_matrix(std::numeric_limits<int>::min(), 0)).pixels,
              ElementsAre(0, 0));
}

}  // namespace
}  // namespace libtrain::data
