#include <libtrain/data/image/draw.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/data/image/pictures.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {

namespace {

using libtrain::test::constant_picture;
using libtrain::test::message_of;
using libtrain::test::pixel;
using libtrain::test::random_picture;
using ::testing::HasSubstr;

constexpr FillColor kColor{200, 31, 7};
constexpr FillColor kBackground{3, 90, 250};

// Of pixels for which is_one(x, y).
RunLength mask_of(int width, int height, const std::function<bool(int, int)>& is_one) {
  std::vector<std::uint8_t> mask;
  for (int x = 0; x < width; ++x) {
    for (int y = 0; y < height; ++y) mask.push_back(is_one(x, y) ? 1 : 0);
  }
  return encode_mask(mask, static_cast<std::uint32_t>(height), static_cast<std::uint32_t>(width));
}

FillColor color_at(const Image& image, int x, int y) {
  return {pixel(image, x, y, 0), pixel(image, x, y, 1), pixel(image, x, y, 2)};
}

// The picture that is `color` where is_drawn(x, y) and `before` elsewhere.
void expect_drawn(const Image& image, const Image& before, const FillColor& color,
                  const std::function<bool(int, int)>& is_drawn) {
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      ASSERT_EQ(color_at(image, x, y), is_drawn(x, y) ? color : color_at(before, x, y)) << x << ", " << y;
    }
  }
}

Image cropped_at(const Image& image, const Crop& crop) {
  Image part{.width = crop.width, .height = crop.height, .channels = image.channels};
  for (int y = 0; y < crop.height; ++y) {
    const auto* const begin = image.row(crop.y + y) + crop.x * image.channels;
    part.pixels.insert(part.pixels.end(), begin, begin + crop.width * image.channels);
  }
  return part;
}

bool is_in_ring(int x, int y) {
  const int distance = (x - 7) * (x - 7) + (y - 5) * (y - 5);
  return distance >= 4 && distance <= 25;
}

TEST(DrawMask, BlendsTheColourAndLeavesOtherPixels) {
  const RunLength ring = mask_of(15, 11, is_in_ring);
  for (const int channels : {1, 3}) {
    for (const double opacity : {0.0, 0.25, 0.5, 0.8, 1.0}) {
      const Image before = random_picture(15, 11, channels);
      Image image = before;
      draw_mask(image, ring, kColor, opacity);
      for (int y = 0; y < image.height; ++y) {
        for (int x = 0; x < image.width; ++x) {
          for (int channel = 0; channel < channels; ++channel) {
            const double value = pixel(before, x, y, channel);
            const double blended = (1 - opacity) * value + opacity * kColor.at(static_cast<std::size_t>(channel));
            EXPECT_NEAR(pixel(image, x, y, channel), is_in_ring(x, y) ? blended : value,
                        is_in_ring(x, y) ? 0.5 + 1e-9 : 0);
          }
        }
      }
    }
  }
}

TEST(DrawMask, RefusesMasksOfOtherImagesAndOpacitiesThatAreNone) {
  Image image = constant_picture(4, 6, 3, 0);
  const auto all = [](int, int) { return true; };
  EXPECT_THAT(message_of<UsageError>([&] { draw_mask(image, mask_of(6, 4, all), kColor); }),
              HasSubstr("6 x 4 pixels cannot be drawn on an image of 4 x 6"));
  EXPECT_THAT(message_of<UsageError>([&] { draw_outline(image, mask_of(4, 7, all), kColor); }), HasSubstr("4 x 7"));
  const RunLength too_long{.height = 6, .width = 4, .counts = {2, 23}};
  EXPECT_THAT(message_of<UsageError>([&] { draw_mask(image, too_long, kColor); }), HasSubstr("cover 25 pixels"));
  EXPECT_THAT(message_of<UsageError>([&] { draw_outline(image, too_long, kColor); }), HasSubstr("cover 25 pixels"));
  for (const double opacity : {-0.1, 1.1, std::nan("")}) {
    EXPECT_THAT(message_of<UsageError>([&] { draw_mask(image, mask_of(4, 6, all), kColor, opacity); }),
                HasSubstr("opacity"));
  }
  EXPECT_THAT(message_of<UsageError>([&] { draw_outline(image, mask_of(4, 6, all), kColor, 0); }),
              HasSubstr("thickness"));
}

TEST(DrawOutline, IsInsideOfTheMask) {
  const Image before = random_picture(20, 16, 3);
  const auto is_one = [](int x, int y) { return x >= 3 && x < 14 && y >= 2 && y < 12; };
  for (const int thickness : {1, 2, 4}) {
    Image image = before;
    draw_outline(image, mask_of(20, 16, is_one), kColor, thickness);
    expect_drawn(image, before, kColor,
                 [&](int x, int y) { return is_one(x, y) && std::min({x - 3, 13 - x, y - 2, 11 - y}) < thickness; });
  }
}

TEST(DrawOutline, FollowsTheBorderOfTheImageAndHoles) {
  const Image before = random_picture(9, 8, 3);
  const auto is_one = [](int x, int y) { return x != 4 || y != 4; };
  Image image = before;
  draw_outline(image, mask_of(9, 8, is_one), kColor);
  expect_drawn(image, before, kColor, [&](int x, int y) {
    return x == 0 || y == 0 || x == 8 || y == 7 || std::abs(x - 4) + std::abs(y - 4) == 1;
  });
}

TEST(DrawRectangle, ColoursTheFrameOfThePixelsThatTheBoxTouches) {
  const Image before = random_picture(20, 16, 3);
  for (const int thickness : {1, 2, 3, 100}) {
    Image image = before;
    draw_rectangle(image, {3.9, 2.0, 12.1, 11.0}, kColor, thickness);
    expect_drawn(image, before, kColor, [&](int x, int y) {
      return x >= 3 && x <= 12 && y >= 2 && y <= 10 && std::min({x - 3, 12 - x, y - 2, 10 - y}) < thickness;
    });
  }
}

// A large picture, of which the small one is a part, has room for what lies outside of the small one.
TEST(DrawRectangle, IsCutOffAtTheBorders) {
  const Crop part{.x = 30, .y = 20, .width = 20, .height = 16};
  const std::vector<ImageBox> boxes{{-5, -5, 4, 4},   {-5.5, 3, 7, 9},     {12, 10, 26, 30}, {-8, -8, 30, 30},
                                    {-9, 3, -1, 9},   {20, 0, 25, 9},      {3, -7.5, 9, 20}, {0, 0, 20, 16},
                                    {-1, -1, 21, 17}, {19.9, 15.9, 24, 24}};
  for (const auto& box : boxes) {
    for (const int thickness : {1, 3}) {
      Image whole = random_picture(80, 60, 3);
      Image image = cropped_at(whole, part);
      draw_rectangle(image, box, kColor, thickness);
      draw_rectangle(whole, {box[0] + part.x, box[1] + part.y, box[2] + part.x, box[3] + part.y}, kColor, thickness);
      EXPECT_EQ(image.pixels, cropped_at(whole, part).pixels) << box[0] << ", " << box[1];
    }
  }
}

TEST(DrawRectangle, OfABoxThatIsNoneIsNotDrawn) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double none = std::nan("");
  const Image before = random_picture(20, 16, 3);
  for (const ImageBox& box :
       {ImageBox{4, 4, 4, 9}, ImageBox{4, 9, 8, 2}, ImageBox{none, 1, 5, 5}, ImageBox{1, 1, none, 5},
        ImageBox{1, none, 4, 5}, ImageBox{1, 2, 4, none}, ImageBox{-kInfinity, -kInfinity, kInfinity, kInfinity},
        ImageBox{1e300, 1e300, kInfinity, kInfinity}, ImageBox{-1e300, -5, -1e200, 30}}) {
    Image image = before;
    draw_rectangle(image, box, kColor);
    EXPECT_EQ(image.pixels, before.pixels) << box[0] << ", " << box[1];
  }
  Image image = before;
  draw_rectangle(image, {-kInfinity, 5, kInfinity, kInfinity}, kColor);
  expect_drawn(image, before, kColor, [](int, int y) { return y == 5; });
  EXPECT_THAT(message_of<UsageError>([&] { draw_rectangle(image, {1, 1, 2, 2}, kColor, 0); }), HasSubstr("thickness"));
}

TEST(DrawText, HasLegibleLetters) {
  Image image = constant_picture(14, 10, 3, 0);
  draw_text(image, 0, 0, "L?", kColor, kBackground);
  const std::vector<std::string> expected{
      ".............",  //
      ".#......###..",  //
      ".#.....#...#.",  //
      ".#.........#.",  //
      ".#........#..",  //
      ".#.......#...",  //
      ".#...........",  //
      ".#####...#...",  //
      ".............",  //
      ".............",
  };
  for (int y = 0; y < 10; ++y) {
    std::string row;
    for (int x = 0; x < 13; ++x) row += color_at(image, x, y) == kColor ? '#' : '.';
    EXPECT_EQ(row, expected.at(static_cast<std::size_t>(y)));
    EXPECT_EQ(color_at(image, 13, y), (FillColor{0, 0, 0}));
  }
}

TEST(DrawText, FillsItsSizeWithTwoColoursAndLeavesOtherPixels) {
  const Image before = random_picture(120, 50, 3);
  for (const int scale : {1, 2, 3}) {
    Image image = before;
    const auto [width, height] = text_size("a y_1", scale);
    EXPECT_EQ(width, 31 * scale);
    EXPECT_EQ(height, 10 * scale);
    draw_text(image, 5, 7, "a y_1", kColor, kBackground, scale);
    std::set<FillColor> inside;
    for (int y = 0; y < image.height; ++y) {
      for (int x = 0; x < image.width; ++x) {
        if (x >= 5 && x < 5 + width && y >= 7 && y < 7 + height) {
          inside.insert(color_at(image, x, y));
        } else {
          ASSERT_EQ(color_at(image, x, y), color_at(before, x, y)) << x << ", " << y;
        }
      }
    }
    EXPECT_EQ(inside, (std::set<FillColor>{kColor, kBackground}));
  }
}

TEST(DrawText, HasADotOfScalePixelsForEachPixelOfScaleOne) {
  Image small = constant_picture(80, 12, 3, 0);
  Image large = constant_picture(240, 36, 3, 0);
  draw_text(small, 1, 1, "score 0.97", kColor, kBackground);
  draw_text(large, 3, 3, "score 0.97", kColor, kBackground, 3);
  for (int y = 0; y < large.height; ++y) {
    for (int x = 0; x < large.width; ++x) ASSERT_EQ(color_at(large, x, y), color_at(small, x / 3, y / 3));
  }
}

TEST(DrawText, HasAnotherGlyphForEachCharacter) {
  std::set<std::vector<std::uint8_t>> glyphs;
  for (char character = 32; character < 127; ++character) {
    Image image = constant_picture(7, 10, 1, 0);
    draw_text(image, 0, 0, {&character, 1}, {255, 255, 255}, {0, 0, 0});
    const auto lit = std::count(image.pixels.begin(), image.pixels.end(), 255);
    EXPECT_EQ(lit == 0, character == ' ') << character;
    EXPECT_LE(lit, 25) << character;
    glyphs.insert(image.pixels);
  }
  EXPECT_EQ(glyphs.size(), 95U);
  // A box for what is not ASCII: one for each character, whatever its number of bytes.
  Image image = constant_picture(7, 10, 1, 0);
  draw_text(image, 0, 0, "\xe2\x82\xac", {255, 255, 255}, {0, 0, 0});
  EXPECT_TRUE(glyphs.insert(image.pixels).second);
  EXPECT_EQ(text_size("M\xc3\xbcll\xe2\x82\xac").width, text_size("Mulle").width);
}

TEST(DrawText, IsCutOffAtTheBorders) {
  const Crop part{.x = 100, .y = 60, .width = 40, .height = 20};
  for (const auto& [x, y] : {std::pair{-20, -4}, std::pair{30, 15}, std::pair{-90, 5}, std::pair{39, 19},
                             std::pair{40, 0}, std::pair{0, 20}, std::pair{-3, -20}}) {
    for (const int scale : {1, 2}) {
      Image whole = random_picture(300, 140, 3);
      Image image = cropped_at(whole, part);
      draw_text(image, x, y, "triangle 0.50", kColor, kBackground, scale);
      draw_text(whole, x + part.x, y + part.y, "triangle 0.50", kColor, kBackground, scale);
      EXPECT_EQ(image.pixels, cropped_at(whole, part).pixels) << x << ", " << y;
    }
  }
  const Image before = random_picture(8, 8, 3);
  Image image = before;
  draw_text(image, std::numeric_limits<int>::max(), std::numeric_limits<int>::min(), "far", kColor, kBackground, 9);
  EXPECT_EQ(image.pixels, before.pixels);
  EXPECT_THAT(message_of<UsageError>([&] { draw_text(image, 0, 0, "x", kColor, kBackground, 0); }), HasSubstr("scale"));
}

TEST(DistinctColor, DiffersBetweenAnyTwoOfTheFirstObjects) {
  for (std::size_t a = 0; a < 20; ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      int difference = 0;
      for (std::size_t channel = 0; channel < 3; ++channel) {
        difference += std::abs(distinct_color(a).at(channel) - distinct_color(b).at(channel));
      }
      EXPECT_GE(difference, a < 8 ? 96 : 32) << a << " and " << b;
    }
    EXPECT_THAT(distinct_color(a), ::testing::Contains(255)) << a;
  }
}

}  // namespace

}  // namespace libtrain::data
