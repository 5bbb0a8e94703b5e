#include <libtrain/data/formats/detail/polygon_mask.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using ::testing::HasSubstr;
using Polygon = std::vector<double>;

std::vector<std::uint8_t> rectangle(std::size_t height, std::size_t width, std::size_t left, std::size_t top,
                                    std::size_t right, std::size_t bottom) {
  std::vector<std::uint8_t> pixels(height * width);
  for (std::size_t x = left; x < right; ++x) {
    for (std::size_t y = top; y < bottom; ++y) pixels[x * height + y] = 1;
  }
  return pixels;
}

Polygon corners(double left, double top, double right, double bottom) {
  return {left, top, right, top, right, bottom, left, bottom};
}

TEST(PolygonMask, ARectangleOfWholeNumbersHoldsThePixelsBetween) {
  EXPECT_EQ(detail::polygon_mask(corners(1, 1, 3, 3), 5, 5), encode_mask(rectangle(5, 5, 1, 1, 3, 3), 5, 5));
  EXPECT_EQ(detail::polygon_mask(corners(0, 0, 7, 5), 5, 7), encode_mask(rectangle(5, 7, 0, 0, 7, 5), 5, 7));
  EXPECT_EQ(detail::polygon_mask(corners(2, 0, 4, 6), 6, 9), encode_mask(rectangle(6, 9, 2, 0, 4, 6), 6, 9));
}

TEST(PolygonMask, TheDirectionOfTheOutlineDoesNotMatter) {
  const Polygon back{1, 1, 1, 3, 3, 3, 3, 1};
  EXPECT_EQ(detail::polygon_mask(back, 5, 5), detail::polygon_mask(corners(1, 1, 3, 3), 5, 5));
}

TEST(PolygonMask, WhatLiesOutsideThePictureIsCutOff) {
  EXPECT_EQ(detail::polygon_mask(corners(-4, -7, 3, 2), 5, 5), encode_mask(rectangle(5, 5, 0, 0, 3, 2), 5, 5));
  EXPECT_EQ(detail::polygon_mask(corners(3, 2, 40, 90), 5, 5), encode_mask(rectangle(5, 5, 3, 2, 5, 5), 5, 5));
  EXPECT_EQ(mask_area(detail::polygon_mask(corners(20, 20, 30, 30), 10, 10)), 0u);
}

TEST(PolygonMask, AgreesWithPycocotoolsToTheBit) {
  struct Case {
    Polygon polygon;
    std::uint32_t height = 0;
    std::uint32_t width = 0;
    std::string counts = {};
  };
  // pycocotools 2.0.11: mask.frPyObjects([polygon], height, width)[0]['counts']
  const std::vector<Case> cases{{{10.5, 2.25, 30.75, 8.5, 25.2, 28.9, 6.1, 20.3},
                                 32,
                                 40,
                                 "c61k05K4L5K4O20O01O010O00010O0010O01O010OO1L5L3L4L4Mk8"},
                                {{-5, -3, 12.4, 4.6, 7.7, 25.3}, 20, 16, "09;2N2O2M2O1N0001O0N3J5L`2"},
                                {{2.5, 2.5, 2.5, 2.5, 9.1, 3.3, 9.1, 3.3, 4.2, 9.9}, 12, 12, "W1483MN2O1O1NS1"},
                                {{1.2, 1.2, 8.8, 8.8, 8.8, 1.2, 1.2, 8.8}, 10, 10, ";74N2N2N10O2N2N28"},
                                {{20, 20, 30, 20, 30, 30}, 10, 10, "T3"}};
  for (const auto& each : cases) {
    EXPECT_EQ(to_coco_string(detail::polygon_mask(each.polygon, each.height, each.width)), each.counts);
  }
}

TEST(PolygonMask, RunsAlwaysCoverThePicture) {
  for (int shift = -12; shift < 12; ++shift) {
    const Polygon triangle{shift + 0.3, 1.9, shift + 6.2, -2.5, 4.4, shift + 9.0};
    std::uint64_t pixels = 0;
    for (const auto run : detail::polygon_mask(triangle, 8, 9).counts) pixels += run;
    EXPECT_EQ(pixels, 72u) << shift;
  }
}

TEST(PolygonMask, RefusesWhatIsNotAPolygonInAPicture) {
  EXPECT_THROW(detail::polygon_mask(Polygon{}, 5, 5), UsageError);
  EXPECT_THROW(detail::polygon_mask(Polygon{1, 2, 3}, 5, 5), UsageError);
  EXPECT_THROW(detail::polygon_mask(corners(0, 0, 1, 1), 0, 5), UsageError);
  EXPECT_THROW(detail::polygon_mask(corners(0, 0, 1, 1), 65536, 65536), UsageError);
  EXPECT_THAT(message_of<EnvironmentError>([] { detail::polygon_mask(corners(0, 0, 2e9, 1), 5, 5); }),
              HasSubstr("2e+09"));
  EXPECT_THROW(detail::polygon_mask(corners(0, 0, std::numeric_limits<double>::quiet_NaN(), 1), 5, 5),
               EnvironmentError);
}

}  // namespace
}  // namespace libtrain::data
