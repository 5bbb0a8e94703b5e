#include <libtrain/data/image/draw_detections.hpp>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/image/draw.hpp>

#include <tests/data/image/pictures.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {

namespace {

using libtrain::test::constant_picture;
using libtrain::test::message_of;
using libtrain::test::random_picture;
using ::testing::HasSubstr;

constexpr FillColor kBlack{0, 0, 0};
constexpr FillColor kWhite{255, 255, 255};

FillColor at(const Image& image, int x, int y) {
  const auto* const value = image.row(y) + 3 * x;
  return {value[0], value[1], value[2]};
}

Image drawn(Image image, const std::vector<DrawnDetection>& detections, const DrawDetectionsOptions& options = {}) {
  draw_detections(image, detections, options);
  return image;
}

// The label as draw_text() draws it there, in both colours that it may have.
std::vector<std::vector<std::uint8_t>> with_label(const Image& image, int x, int y, const std::string& label, int scale,
                                                  const FillColor& background) {
  std::vector<std::vector<std::uint8_t>> results;
  for (const auto& color : {kBlack, kWhite}) {
    Image copy = image;
    draw_text(copy, x, y, label, color, background, scale);
    results.push_back(copy.pixels);
  }
  return results;
}

RunLength left_half(int width, int height) {
  std::vector<std::uint8_t> mask(static_cast<std::size_t>(width) * static_cast<std::size_t>(height));
  std::fill_n(mask.begin(), mask.size() / 2, std::uint8_t{1});
  return encode_mask(mask, static_cast<std::uint32_t>(height), static_cast<std::uint32_t>(width));
}

TEST(DrawDetections, ConsistOfMaskOutlineBoxAndLabel) {
  const Image before = random_picture(100, 60, 3);
  const RunLength mask = left_half(100, 60);
  const FillColor color = distinct_color(0);
  Image expected = before;
  draw_mask(expected, mask, color, 0.3);
  draw_outline(expected, mask, color, 2);
  draw_rectangle(expected, {20, 30, 70, 55}, color, 2);
  const Image image = drawn(before, {{.box = {20, 30, 70, 55}, .name = "cat", .score = 0.966, .mask = mask}},
                            {.mask_opacity = 0.3, .scale = 2});
  EXPECT_THAT(with_label(expected, 2, 10, "cat 0.97", 2, color), ::testing::Contains(image.pixels));
}

TEST(DrawDetections, HaveOnlyThePartsThatAreGiven) {
  const Image before = random_picture(100, 60, 3);
  EXPECT_EQ(drawn(before, {}).pixels, before.pixels);
  Image framed = before;
  draw_rectangle(framed, {5, 30, 70, 55}, distinct_color(0));
  EXPECT_EQ(drawn(before, {{.box = {5, 30, 70, 55}}}).pixels, framed.pixels);
  for (const auto& [name, score, label] :
       {std::tuple{"", std::optional{1.0}, "1.00"}, std::tuple{"dog", std::optional<double>{}, "dog"}}) {
    EXPECT_THAT(with_label(framed, 5, 20, label, 1, distinct_color(0)),
                ::testing::Contains(drawn(before, {{.box = {5, 30, 70, 55}, .name = name, .score = score}}).pixels));
  }
}

TEST(DrawDetections, HaveLabelsInsideOfTheImage) {
  const Image before = random_picture(100, 60, 3);
  struct Case {
    ImageBox box;
    int x;
    int y;
  };
  // "square 0.50" has 67 x 10 pixels.
  for (const auto& [box, x, y] :
       {Case{{0, 0, 40, 40}, 0, 0}, Case{{10.9, 9.9, 40, 40}, 10, 9}, Case{{10, 10, 40, 40}, 10, 0},
        Case{{90, 55, 100, 60}, 33, 45}, Case{{-8, -8, 40, 40}, 0, 0}, Case{{50, 200, 60, 300}, 33, 50}}) {
    Image expected = before;
    draw_rectangle(expected, box, distinct_color(0));
    const Image image = drawn(before, {{.box = box, .name = "square", .score = 0.5}});
    EXPECT_THAT(with_label(expected, x, y, "square 0.50", 1, distinct_color(0)), ::testing::Contains(image.pixels))
        << box[0] << ", " << box[1];
  }
}

TEST(DrawDetections, AreLegibleOnLargeImages) {
  for (const auto& [width, height, scale] :
       {std::tuple{399, 900, 1}, std::tuple{400, 900, 2}, std::tuple{640, 480, 2}, std::tuple{1333, 800, 3}}) {
    const Image before = constant_picture(width, height, 3, 90);
    const std::vector<DrawnDetection> detections{{.box = {50, 100, 200, 220}, .name = "bus", .score = 0.5}};
    EXPECT_EQ(drawn(before, detections).pixels, drawn(before, detections, {.scale = scale}).pixels) << width;
    EXPECT_NE(drawn(before, detections).pixels, drawn(before, detections, {.scale = scale + 1}).pixels) << width;
  }
}

TEST(DrawDetections, AreDrawnOnAnEnlargedImageOnRequest) {
  const Image before = random_picture(30, 20, 3);
  Image large{.width = 90, .height = 60};
  for (int y = 0; y < 60; ++y) {
    for (int x = 0; x < 90; ++x) {
      for (const auto value : at(before, x / 3, y / 3)) large.pixels.push_back(value);
    }
  }
  EXPECT_EQ(drawn(before, {}, {.enlarge = 3}).pixels, large.pixels);
  const std::vector<DrawnDetection> detections{
      {.box = {2, 7, 20, 15.5}, .name = "a", .score = 0.5, .mask = left_half(30, 20)}};
  const std::vector<DrawnDetection> larger{
      {.box = {6, 21, 60, 46.5}, .name = "a", .score = 0.5, .mask = left_half(90, 60)}};
  const Image image = drawn(before, detections, {.mask_opacity = 0.3, .scale = 2, .enlarge = 3});
  EXPECT_EQ(image.width, 90);
  EXPECT_EQ(image.height, 60);
  EXPECT_EQ(image.pixels, drawn(large, larger, {.mask_opacity = 0.3, .scale = 2}).pixels);
  Image grey = random_picture(5, 4, 1);
  draw_detections(grey, {}, {.enlarge = 2});
  EXPECT_EQ(grey.pixels.size(), 80U);
}

TEST(DrawDetections, WithSmallerNumbersAreOverTheOthers) {
  const Image image = drawn(constant_picture(50, 40, 3, 128),
                            {{.box = {10, 20, 30, 35}}, {.box = {10, 20, 40, 35}}, {.box = {10, 25, 30, 38}}});
  EXPECT_EQ(at(image, 20, 20), distinct_color(0));
  EXPECT_EQ(at(image, 10, 30), distinct_color(0));
  EXPECT_EQ(at(image, 39, 30), distinct_color(1));
  EXPECT_EQ(at(image, 20, 37), distinct_color(2));
}

TEST(DrawDetections, OfAnUntrainedNetworkAreDrawnWithoutAnError) {
  const double none = std::nan("");
  const Image before = random_picture(30, 20, 3);
  const std::vector<DrawnDetection> detections{{.box = {none, none, none, none}, .name = "a", .score = none},
                                               {.box = {1, 1, 1, 1}, .name = "b", .score = 0.5},
                                               {.box = {5, 4, 3, 2}, .name = "c", .score = 0.5}};
  EXPECT_EQ(drawn(before, detections).pixels, before.pixels);
  EXPECT_NE(drawn(before, {{.box = {1, 1, 9, 9}, .name = "a", .score = none}}).pixels, before.pixels);
  EXPECT_NE(drawn(before, {{.box = {1, 1, 9, 9}, .score = -1e308}}).pixels, before.pixels);
}

TEST(DrawDetections, RefuseWhatDoesNotFit) {
  Image image = constant_picture(30, 20, 3, 0);
  EXPECT_THAT(
      message_of<UsageError>([&] { draw_detections(image, std::vector<DrawnDetection>{{.mask = left_half(20, 30)}}); }),
      HasSubstr("20 x 30"));
  EXPECT_THAT(message_of<UsageError>([&] { draw_detections(image, {}, {.scale = -1}); }), HasSubstr("scale"));
  for (const int enlarge : {0, -1, 1000, 100'000}) {
    EXPECT_THAT(message_of<UsageError>([&] { draw_detections(image, {}, {.enlarge = enlarge}); }),
                HasSubstr("by " + std::to_string(enlarge)));
  }
  EXPECT_THAT(message_of<UsageError>([&] {
                draw_detections(image, std::vector<DrawnDetection>{{.mask = left_half(20, 30)}}, {.enlarge = 2});
              }),
              HasSubstr("20 x 30"));
  EXPECT_EQ(image.width, 30);
  Image none;
  EXPECT_THAT(message_of<UsageError>([&] { draw_detections(none, {}); }), HasSubstr("0 x 0"));
}

}  // namespace

}  // namespace libtrain::data
