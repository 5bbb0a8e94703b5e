#include <libtrain/data/image/resize.hpp>

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/data/image/pictures.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using test::constant_picture;
using test::random_picture;
using ::testing::HasSubstr;

Image resized_whole(const ImageView& source, int width, int height, const ResizeOptions& options) {
  Image result = constant_picture(width, height, source.channels, 0);
  Resizer().resize(source, options, target_of(result));
  return result;
}

ResizeOptions with_part(const ResizeOptions& options, const Image& picture, const Crop& part) {
  ResizeOptions result = options;
  result.part = SourcePart{.x = part.x, .y = part.y, .width = picture.width, .height = picture.height};
  return result;
}

TEST(ResizePart, EqualsResizingTheWholePicture) {
  std::mt19937 engine(3);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine); };
  for (int trial = 0; trial < 300; ++trial) {
    const int channels = trial % 2 == 0 ? 3 : 1;
    const Image picture = random_picture(draw(1, 120), draw(1, 120), channels, static_cast<unsigned>(trial));
    ResizeOptions options{.width = draw(1, 90), .height = draw(1, 90)};
    const int width = draw(1, options.width);
    const int height = draw(1, options.height);
    options.x = draw(0, options.width - width);
    options.y = draw(0, options.height - height);
    if (trial % 3 == 0) {
      options.box = ResizeBox{.right = static_cast<float>(picture.width) - 0.5f,
                              .bottom = static_cast<float>(picture.height) - 0.25f};
    }
    if (trial % 5 == 0) options.flip = Flip::horizontal;
    const Crop part = needed_source(picture.width, picture.height, options, width, height);
    const Image all = resized_whole(view(picture), width, height, options);
    const Image of_part = resized_whole(view(picture, part), width, height, with_part(options, picture, part));
    ASSERT_EQ(of_part.pixels, all.pixels) << trial;
  }
}

// To a third: the triangle reaches 3 pixels to either side of 3 (o + 1/2), so that output o needs pixels 3 o - 1 to
// 3 o + 3, and outputs 10 to 19 those from 29 to 60, 5 to 8 those from 14 to 27. One more would do no harm: its weight
// is 0.
TEST(ResizePart, NeedsWhatTheFilterReaches) {
  const ResizeOptions options{.width = 30, .height = 20, .x = 10, .y = 5};
  const Crop part = needed_source(90, 60, options, 10, 4);
  EXPECT_LE(part.x, 29);
  EXPECT_GE(part.x, 28);
  EXPECT_GE(part.x + part.width, 61);
  EXPECT_LE(part.x + part.width, 62);
  EXPECT_LE(part.y, 14);
  EXPECT_GE(part.y, 13);
  EXPECT_GE(part.y + part.height, 28);
  EXPECT_LE(part.y + part.height, 29);
  EXPECT_EQ(needed_source(90, 60, {}, 30, 20), (Crop{.x = 0, .y = 0, .width = 90, .height = 60}));
}

TEST(ResizePart, RefusesAPartThatLacksPixels) {
  const Image picture = random_picture(90, 60, 3);
  const ResizeOptions options{.width = 30, .height = 20, .x = 10, .y = 5};
  const Crop needed = needed_source(90, 60, options, 10, 4);
  const auto message = [&](const Crop& pixels, const Crop& place) {
    return message_of<UsageError>(
        [&] { resized_whole(view(picture, pixels), 10, 4, with_part(options, picture, place)); });
  };
  Crop narrower = needed;
  ++narrower.x;
  --narrower.width;
  EXPECT_THAT(message(narrower, narrower), HasSubstr("needs columns"));
  Crop lower = needed;
  --lower.height;
  EXPECT_THAT(message(lower, lower), HasSubstr("needs rows"));
  Crop outside = needed;
  outside.x = 90 - outside.width + 1;
  EXPECT_THAT(message(needed, outside), HasSubstr("needs columns"));
}

TEST(ResizePart, RefusesEmptyPictures) {
  EXPECT_THAT(message_of<UsageError>([] { needed_source(0, 5, {}, 1, 1); }), HasSubstr("0 x 5"));
  EXPECT_THAT(message_of<UsageError>([] { needed_source(5, 5, {}, 1, 0); }), HasSubstr("1 x 0"));
}

}  // namespace
}  // namespace libtrain::data
