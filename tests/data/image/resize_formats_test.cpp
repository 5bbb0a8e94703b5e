#include <libtrain/data/image/resize.hpp>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

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
using ::testing::HasSubstr;

constexpr int kWidth = 37;
constexpr int kHeight = 21;

// The result before it is normalised, which resize_test.cpp covers.
Image bytes_of(const Image& source, Flip flip) {
  Image result = test::constant_picture(kWidth, kHeight, source.channels, 0);
  Resizer().resize(view(source), {.flip = flip},
                   {.pixels = result.pixels.data(),
                    .width = kWidth,
                    .height = kHeight,
                    .channels = source.channels,
                    .type = PixelType::uint8,
                    .layout = Layout::nhwc});
  return result;
}

template <typename Element>
struct Output {
  std::vector<Element> elements;
  PixelTarget target;

  Output(int channels, PixelType type, Layout layout)
      : elements(static_cast<std::size_t>(kWidth * kHeight * channels)),
        target{.pixels = elements.data(),
               .width = kWidth,
               .height = kHeight,
               .channels = channels,
               .type = type,
               .layout = layout} {}

  Element at(int x, int y, int channel) const {
    const int index = target.layout == Layout::nhwc ? (y * kWidth + x) * target.channels + channel
                                                    : (channel * kHeight + y) * kWidth + x;
    return elements[static_cast<std::size_t>(index)];
  }
};

template <typename Check>
void for_each_value(int channels, const Check& check) {
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) {
      for (int channel = 0; channel < channels; ++channel) check(x, y, channel);
    }
  }
}

double normalized(int byte, int channel, const Normalization& normalization) {
  const auto index = static_cast<std::size_t>(channel);
  return (byte / 255.0 - normalization.mean[index]) / normalization.standard_deviation[index];
}

double value_of_half(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double magnitude =
      exponent == 0 ? std::ldexp(bits & 1023, -24) : std::ldexp(1024 + (bits & 1023), exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

float value_of_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

TEST(ResizeFormats, StoreTheSameInEitherLayout) {
  for (const int channels : {1, 3}) {
    for (const Flip flip : {Flip::none, Flip::horizontal}) {
      const Image source = random_picture(100, 64, channels);
      const Image expected = bytes_of(source, flip);
      for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
        Output<std::uint8_t> output(channels, PixelType::uint8, layout);
        Resizer().resize(view(source), {.flip = flip}, output.target);
        for_each_value(channels, [&](int x, int y, int channel) {
          ASSERT_EQ(output.at(x, y, channel), pixel(expected, x, y, channel)) << x << " " << y << " " << channel;
        });
      }
    }
  }
}

TEST(ResizeFormats, NormalizeByChannelInFloat32) {
  for (const int channels : {1, 3}) {
    const Image source = random_picture(100, 64, channels);
    const Image bytes = bytes_of(source, Flip::horizontal);
    for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
      Output<float> output(channels, PixelType::float32, layout);
      Resizer().resize(view(source), {.flip = Flip::horizontal, .normalization = kImageNetNormalization},
                       output.target);
      for_each_value(channels, [&](int x, int y, int channel) {
        const double expected = normalized(pixel(bytes, x, y, channel), channel, kImageNetNormalization);
        ASSERT_NEAR(output.at(x, y, channel), expected, 1e-6);
      });
    }
  }
}

TEST(ResizeFormats, AreZeroToOneWithoutANormalization) {
  const Image black = test::constant_picture(5, 5, 3, 0);
  const Image white = test::constant_picture(5, 5, 3, 255);
  Output<float> output(3, PixelType::float32, Layout::nchw);
  Resizer().resize(view(black), {}, output.target);
  for (const float value : output.elements) ASSERT_EQ(value, 0.0f);
  Resizer().resize(view(white), {}, output.target);
  for (const float value : output.elements) ASSERT_FLOAT_EQ(value, 1.0f);
}

// The rounding itself is covered by float16_test.cpp: here, that it is applied to the right elements.
TEST(ResizeFormats, CastToTheHalfPrecisions) {
  const Image source = random_picture(100, 64, 3);
  const Image bytes = bytes_of(source, Flip::none);
  for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
    Output<std::uint16_t> half(3, PixelType::float16, layout);
    Output<std::uint16_t> brain(3, PixelType::bfloat16, layout);
    Resizer().resize(view(source), {.normalization = kImageNetNormalization}, half.target);
    Resizer().resize(view(source), {.normalization = kImageNetNormalization}, brain.target);
    for_each_value(3, [&](int x, int y, int channel) {
      const double expected = normalized(pixel(bytes, x, y, channel), channel, kImageNetNormalization);
      // Half a unit in the last place, and the float32 before it.
      ASSERT_NEAR(value_of_half(half.at(x, y, channel)), expected, std::abs(expected) / 2048 + 1e-6);
      ASSERT_NEAR(value_of_bfloat16(brain.at(x, y, channel)), expected, std::abs(expected) / 256 + 1e-6);
    });
  }
}

TEST(ResizeFormats, KeepToTheStridesTheyAreGiven) {
  const Image source = random_picture(100, 64, 3);
  const Image expected = bytes_of(source, Flip::none);
  constexpr std::uint8_t kUntouched = 0xA5;
  for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
    const int row = layout == Layout::nhwc ? kWidth * 3 + 4 : kWidth + 5;
    const int channel_stride = row * kHeight;
    std::vector<std::uint8_t> memory(static_cast<std::size_t>(3 * channel_stride), kUntouched);
    Resizer().resize(view(source), {},
                     {.pixels = memory.data(),
                      .width = kWidth,
                      .height = kHeight,
                      .channels = 3,
                      .type = PixelType::uint8,
                      .layout = layout,
                      .row_stride = row});
    std::vector<std::uint8_t> wanted(memory.size(), kUntouched);
    for_each_value(3, [&](int x, int y, int channel) {
      const int index = layout == Layout::nhwc ? y * row + x * 3 + channel : channel * channel_stride + y * row + x;
      wanted[static_cast<std::size_t>(index)] = pixel(expected, x, y, channel);
    });
    EXPECT_EQ(memory, wanted);
  }
}

TEST(ResizeFormats, RefuseANormalizationThatDividesByZero) {
  const Image source = random_picture(8, 8, 3);
  Output<float> output(3, PixelType::float32, Layout::nchw);
  const ResizeOptions without_mean{.normalization = {.mean = {0, 0, INFINITY}}};
  EXPECT_THAT(message_of<UsageError>([&] { Resizer().resize(view(source), without_mean, output.target); }),
              HasSubstr("Channel 2"));
  for (const float deviation : {0.0f, -1.0f, NAN}) {
    const ResizeOptions options{.normalization = {.standard_deviation = {1, deviation, 1}}};
    EXPECT_THAT(message_of<UsageError>([&] { Resizer().resize(view(source), options, output.target); }),
                HasSubstr("Channel 1"));
  }
}

}  // namespace
}  // namespace libtrain::data
