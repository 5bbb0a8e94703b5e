#include <libtrain/data/image/resize.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/data/image/pictures.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using test::constant_picture;
using test::pixel;
using test::random_picture;
using ::testing::HasSubstr;

struct Size {
  int width = 0;
  int height = 0;
};

Image resized(const ImageView& source, Size size, const ResizeOptions& options = {}) {
  Image result = constant_picture(size.width, size.height, source.channels, 0);
  Resizer().resize(source, options, target_of(result));
  return result;
}

// Weights of one output by the definition of the filter, before any rounding.
std::vector<double> triangle(int source_size, double begin, double end, int outputs, int output) {
  const double scale = (end - begin) / outputs;
  const double reach = std::max(scale, 1.0);
  const double center = begin + (output + 0.5) * scale;
  std::vector<double> weights(static_cast<std::size_t>(source_size));
  double sum = 0;
  for (int i = 0; i < source_size; ++i) {
    auto& weight = weights[static_cast<std::size_t>(i)];
    weight = std::max(0.0, 1 - std::abs(i + 0.5 - center) / reach);
    sum += weight;
  }
  for (auto& weight : weights) weight /= sum;
  return weights;
}

double rounded(double value) {
  return std::floor(value + 0.5);
}

// The horizontal pass to whole numbers, then the vertical one.
Image naively_resized(const Image& source, Size size, const ResizeBox& box) {
  std::vector<double> rows(static_cast<std::size_t>(source.height) * static_cast<std::size_t>(size.width));
  Image result = constant_picture(size.width, size.height, source.channels, 0);
  for (int channel = 0; channel < source.channels; ++channel) {
    for (int x = 0; x < size.width; ++x) {
      const auto weights = triangle(source.width, box.left, box.right, size.width, x);
      for (int y = 0; y < source.height; ++y) {
        double sum = 0;
        for (int i = 0; i < source.width; ++i)
          sum += weights[static_cast<std::size_t>(i)] * pixel(source, i, y, channel);
        rows[static_cast<std::size_t>(y * size.width + x)] = rounded(sum);
      }
    }
    for (int y = 0; y < size.height; ++y) {
      const auto weights = triangle(source.height, box.top, box.bottom, size.height, y);
      for (int x = 0; x < size.width; ++x) {
        double sum = 0;
        for (int i = 0; i < source.height; ++i) {
          sum += weights[static_cast<std::size_t>(i)] * rows[static_cast<std::size_t>(i * size.width + x)];
        }
        result.row(y)[x * source.channels + channel] = static_cast<std::uint8_t>(rounded(sum));
      }
    }
  }
  return result;
}

int largest_difference(const Image& left, const Image& right) {
  int difference = 0;
  for (std::size_t i = 0; i < left.pixels.size(); ++i) {
    difference = std::max(difference, std::abs(left.pixels[i] - right.pixels[i]));
  }
  return difference;
}

ResizeBox whole(const Image& image) {
  return {.right = static_cast<float>(image.width), .bottom = static_cast<float>(image.height)};
}

TEST(Resize, KeepsAConstantPictureConstant) {
  for (const int channels : {1, 3}) {
    for (const int number : {0, 1, 127, 254, 255}) {
      const auto value = static_cast<std::uint8_t>(number);
      const Image picture = constant_picture(37, 41, channels, value);
      for (const Size size : {Size{1, 1}, Size{5, 9}, Size{37, 20}, Size{80, 90}}) {
        EXPECT_EQ(resized(view(picture), size).pixels,
                  constant_picture(size.width, size.height, channels, value).pixels);
      }
    }
  }
}

TEST(Resize, KeepsAConstantPictureConstantUnderVeryManyTaps) {
  EXPECT_EQ(pixel(resized(view(constant_picture(60000, 1, 1, 255)), {1, 1}), 0, 0), 255);
  EXPECT_EQ(pixel(resized(view(constant_picture(1, 60000, 1, 255)), {1, 1}), 0, 0), 255);
}

TEST(Resize, ToTheSameSizeCopies) {
  for (const Size size : {Size{1, 1}, Size{3, 70}, Size{70, 3}, Size{33, 65}}) {
    const Image picture = random_picture(size.width, size.height, 3);
    EXPECT_EQ(resized(view(picture), size).pixels, picture.pixels);
  }
}

// A filter that is symmetric around the centre keeps a straight line straight: the value at the centre.
TEST(Resize, KeepsALinearRampLinear) {
  Image ramp = constant_picture(128, 1, 1, 0);
  for (int x = 0; x < 128; ++x) ramp.row(0)[x] = static_cast<std::uint8_t>(2 * x);
  const Image half = resized(view(ramp), {64, 1});
  for (int x = 1; x < 63; ++x) EXPECT_EQ(pixel(half, x, 0), 4 * x + 1) << x;
  const Image twice = resized(view(ramp), {256, 1});
  for (int x = 1; x < 255; ++x) EXPECT_EQ(pixel(twice, x, 0), x) << x;  // x - 1/2, rounded up
}

TEST(Resize, EqualsANaiveReferenceWithinRounding) {
  std::mt19937 engine(5);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine); };
  for (int trial = 0; trial < 60; ++trial) {
    const Image picture =
        random_picture(draw(1, 60), draw(1, 60), trial % 2 == 0 ? 3 : 1, static_cast<unsigned>(trial));
    ResizeBox box = whole(picture);
    if (trial % 3 != 0) {
      box = {.left = 0.25f * static_cast<float>(draw(0, picture.width)),
             .top = 0.25f * static_cast<float>(draw(0, picture.height)),
             .right = static_cast<float>(picture.width) - 0.25f * static_cast<float>(draw(0, picture.width)),
             .bottom = static_cast<float>(picture.height) - 0.3f * static_cast<float>(draw(0, picture.height))};
    }
    const Size size{draw(1, 90), draw(1, 90)};
    const Image actual = resized(view(picture), size, {.box = box});
    EXPECT_LE(largest_difference(actual, naively_resized(picture, size, box)), 1) << "trial " << trial;
  }
}

TEST(Resize, EqualsANaiveReferenceForEveryNumberOfTaps) {
  const Image picture = random_picture(90, 90, 3);
  for (int size = 3; size <= 90; ++size) {
    const Image actual = resized(view(picture), {size, size});
    EXPECT_LE(largest_difference(actual, naively_resized(picture, {size, size}, whole(picture))), 1) << size;
  }
}

TEST(Resize, OfAWindowIsThatPartOfTheWhole) {
  const Image picture = random_picture(100, 75, 3);
  const Image all = resized(view(picture), {68, 51});
  const Image part = resized(view(picture), {40, 30}, {.width = 68, .height = 51, .x = 14, .y = 10});
  for (int y = 0; y < 30; ++y) {
    for (int i = 0; i < 40 * 3; ++i) ASSERT_EQ(part.row(y)[i], all.row(y + 10)[i + 14 * 3]);
  }
}

TEST(Resize, OfAViewSeesNothingAroundIt) {
  const Image picture = random_picture(50, 40, 3);
  const Crop crop{7, 5, 30, 20};
  Image copy = constant_picture(crop.width, crop.height, 3, 0);
  for (int y = 0; y < crop.height; ++y) {
    std::copy_n(picture.row(y + crop.y) + crop.x * 3, copy.row_bytes(), copy.row(y));
  }
  EXPECT_EQ(resized(view(picture, crop), {13, 11}).pixels, resized(view(copy), {13, 11}).pixels);
  const ResizeBox box{7, 5, 37, 25};
  EXPECT_NE(resized(view(picture), {13, 11}, {.box = box}).pixels, resized(view(copy), {13, 11}).pixels);
}

TEST(Resize, FlipsWhatItHasResized) {
  const Image picture = random_picture(50, 40, 3);
  const Image straight = resized(view(picture), {23, 17});
  const Image flipped = resized(view(picture), {23, 17}, {.flip = Flip::horizontal});
  for (int y = 0; y < 17; ++y) {
    for (int x = 0; x < 23; ++x) {
      for (int channel = 0; channel < 3; ++channel) {
        ASSERT_EQ(pixel(flipped, x, y, channel), pixel(straight, 22 - x, y, channel));
      }
    }
  }
}

TEST(Resize, GivesTheSameWhateverItResizedBefore) {
  const std::pair<Size, Size> sizes[] = {
      {{300, 200}, {50, 60}}, {{20, 30}, {64, 5}}, {{7, 90}, {9, 9}}, {{300, 200}, {50, 60}}};
  Resizer resizer;
  for (const auto& [from, to] : sizes) {
    for (const int channels : {3, 1}) {
      const Image picture = random_picture(from.width, from.height, channels);
      Image result = constant_picture(to.width, to.height, channels, 0);
      resizer.resize(view(picture), {}, target_of(result));
      EXPECT_EQ(result.pixels, resized(view(picture), to).pixels);
    }
  }
}

TEST(Resize, RefusesWhatItCannotResize) {
  const Image picture = constant_picture(10, 8, 3, 0);
  const Image grey = constant_picture(4, 4, 1, 0);
  Image result = constant_picture(4, 4, 3, 0);
  const auto message = [&](const ImageView& source, const ResizeOptions& options, const PixelTarget& target) {
    return message_of<UsageError>([&] { Resizer().resize(source, options, target); });
  };
  const PixelTarget target = target_of(result);
  EXPECT_THAT(message({}, {}, target), HasSubstr("0 x 0"));
  EXPECT_THAT(message(view(grey), {}, target), HasSubstr("1 channels"));
  EXPECT_THAT(message(view(picture), {}, {.width = 4, .height = 4}), HasSubstr("memory"));
  EXPECT_THAT(message(view(picture), {.box = ResizeBox{0, 0, 11, 8}}, target), HasSubstr("column 0 to 11"));
  EXPECT_THAT(message(view(picture), {.box = ResizeBox{-0.5, 0, 9, 8}}, target), HasSubstr("column -0.5 to 9"));
  EXPECT_THAT(message(view(picture), {.box = ResizeBox{0, 3, 10, 3}}, target), HasSubstr("row 3 to 3"));
  EXPECT_THAT(message(view(picture), {.box = ResizeBox{0, NAN, 10, 3}}, target), HasSubstr("nan"));
  EXPECT_THAT(message(view(picture), {.width = 6, .height = 6, .x = 3}, target), HasSubstr("columns 3 to 3 + 4"));
  EXPECT_THAT(message(view(picture), {.width = 3, .height = 6}, target), HasSubstr("resized image of 3 columns"));
  EXPECT_THAT(message_of<UsageError>([&] { view(picture, {7, 0, 4, 4}); }), HasSubstr("(7, 0)"));
  EXPECT_THAT(message_of<UsageError>([&] { view(Image{.width = 2, .height = 2}); }), HasSubstr("0 bytes"));
}

}  // namespace
}  // namespace libtrain::data
