#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <libtrain/data/image/decode_image.hpp>
#include <libtrain/data/image/detail/jpeg.hpp>
#include <libtrain/data/image/encode_png.hpp>
#include <libtrain/data/image/geometry.hpp>
#include <libtrain/data/image/image.hpp>
#include <libtrain/data/image/image_pipeline.hpp>

#include <tests/data/image/pictures.hpp>
#include <tests/data/image/smooth_picture.hpp>

namespace libtrain::data {
namespace {

using test::constant_picture;
using test::mean_difference;
using test::pixel;
using test::smooth_picture;

using File = std::vector<std::byte>;

ImagePipelineOptions bytes_of_size(int width, int height, bool scaled_decoding) {
  return {.width = width,
          .height = height,
          .type = PixelType::uint8,
          .layout = Layout::nhwc,
          .scaled_decoding = scaled_decoding};
}

Image finished(const ImagePipelineOptions& options, const File& file, std::uint64_t seed = 0) {
  ImagePipeline pipeline(options);
  Image image = constant_picture(options.width, options.height, options.channels, 0);
  SampleRandom random(seed, 0, 0);
  pipeline.run(file, "cat.jpg", random, std::as_writable_bytes(std::span(image.pixels)));
  return image;
}

// A whole image of 500 x 400 pixels, decoded at that scale.
Image resized_from(const File& file, int denominator, int width, int height) {
  const Image scaled = decode_image(file, {.scale_denominator = denominator});
  Image image = constant_picture(width, height, 3, 0);
  const ResizeBox box{.right = 500.0f / static_cast<float>(denominator),
                      .bottom = 400.0f / static_cast<float>(denominator)};
  Resizer().resize(view(scaled), {.box = box},
                   {.pixels = image.pixels.data(),
                    .width = width,
                    .height = height,
                    .channels = 3,
                    .type = PixelType::uint8,
                    .layout = Layout::nhwc});
  return image;
}

struct Case {
  int width = 0;
  int height = 0;
  int denominator = 1;
};

TEST(ScaledDecoding, TakesTheSmallestPictureThatIsNoSmallerThanTheFinishedOne) {
  const File file = detail::encode_jpeg(smooth_picture(500, 400, 3));
  for (const Case& wanted : {Case{62, 50, 8}, Case{63, 50, 4}, Case{62, 51, 4}, Case{125, 100, 4}, Case{126, 100, 2},
                             Case{250, 200, 2}, Case{250, 201, 1}}) {
    ImagePipelineOptions options = bytes_of_size(wanted.width, wanted.height, true);
    // The whole image.
    options.random_resized_crop = RandomResizedCropOptions{.scale = {1, 1}, .ratio = {1.25, 1.25}};
    const Image image = finished(options, file);
    for (const int denominator : {1, 2, 4, 8}) {
      const Image expected = resized_from(file, denominator, wanted.width, wanted.height);
      EXPECT_EQ(image.pixels == expected.pixels, denominator == wanted.denominator)
          << wanted.width << " x " << wanted.height << " at 1/" << denominator;
    }
  }
}

// The shorter side of 400 pixels becomes 100: a quarter will do, and for 101 a half.
TEST(ScaledDecoding, LooksAtTheWholeResizedPictureWhereTheMiddleIsCutOut) {
  const File file = detail::encode_jpeg(smooth_picture(500, 400, 3));
  for (const Case& whole : {Case{125, 100, 4}, Case{126, 101, 2}}) {
    ImagePipelineOptions options = bytes_of_size(61, 40, true);
    options.short_side = whole.height;
    const Image all = resized_from(file, whole.denominator, whole.width, whole.height);
    const Crop middle = resized_center_crop(500, 400, whole.height, 61, 40).crop;
    const Image image = finished(options, file);
    for (int y = 0; y < 40; ++y) {
      for (int x = 0; x < 61; ++x) ASSERT_EQ(pixel(image, x, y), pixel(all, x + middle.x, y + middle.y));
    }
  }
}

// Half a pixel of the file more to the left would make it 2.
TEST(ScaledDecoding, KeepsEverythingInItsPlace) {
  for (const auto subsampling : {detail::ChromaSubsampling::yuv444, detail::ChromaSubsampling::yuv420}) {
    const File file = detail::encode_jpeg(smooth_picture(501, 403, 3), {.subsampling = subsampling});
    int differing = 0;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      ImagePipelineOptions scaled = bytes_of_size(64, 64, true);
      ImagePipelineOptions exact = bytes_of_size(64, 64, false);
      if (seed == 0) {
        scaled.short_side = exact.short_side = 80;
      } else {
        scaled.random_resized_crop = exact.random_resized_crop = RandomResizedCropOptions{.scale = {0.3, 1}};
      }
      const Image left = finished(scaled, file, seed);
      const Image right = finished(exact, file, seed);
      EXPECT_LT(mean_difference(left, right), 1) << seed;
      if (left.pixels != right.pixels) ++differing;
    }
    EXPECT_GT(differing, 15);
  }
}

TEST(ScaledDecoding, IsNotUsedUnlessItWasAskedFor) {
  const File file = detail::encode_jpeg(smooth_picture(500, 400, 3));
  ImagePipelineOptions options = bytes_of_size(50, 40, false);
  options.random_resized_crop = RandomResizedCropOptions{.scale = {1, 1}, .ratio = {1.25, 1.25}};
  EXPECT_TRUE(finished(options, file).pixels == resized_from(file, 1, 50, 40).pixels);
}

TEST(ScaledDecoding, LeavesPngsAlone) {
  const File file = encode_png(smooth_picture(300, 200, 3));
  ImagePipelineOptions scaled = bytes_of_size(64, 64, true);
  ImagePipelineOptions exact = bytes_of_size(64, 64, false);
  scaled.short_side = exact.short_side = 80;
  EXPECT_TRUE(finished(scaled, file).pixels == finished(exact, file).pixels);
}

}  // namespace
}  // namespace libtrain::data
