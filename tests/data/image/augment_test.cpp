#include <libtrain/data/image/augment.hpp>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/image/detail/color.hpp>

#include <tests/data/image/draw_statistics.hpp>
#include <tests/data/image/pictures.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {

namespace {

using libtrain::test::message_of;
using test::distance;
using test::random_picture;
using test::uniform_over;
using ::testing::HasSubstr;

constexpr int kDraws = 28000;

std::map<AugmentOperation, std::vector<double>> magnitudes_by_operation() {
  SampleRandom random(5, 6, 7);
  std::map<AugmentOperation, std::vector<double>> result;
  for (int i = 0; i < kDraws; ++i) {
    const AugmentStep step = draw_trivial_augment(random);
    result[step.operation].push_back(step.magnitude);
  }
  return result;
}

TEST(TrivialAugment, DrawsAllOperationsEquallyOften) {
  const auto magnitudes = magnitudes_by_operation();
  ASSERT_EQ(magnitudes.size(), static_cast<std::size_t>(kAugmentOperations));
  double chi_square = 0;
  for (const auto& [operation, values] : magnitudes) {
    const double difference = static_cast<double>(values.size()) - 2000.0;
    chi_square += difference * difference / 2000.0;
  }
  EXPECT_LT(chi_square, 40.9);  // the 99.99th percentile with 13 degrees of freedom
}

TEST(TrivialAugment, DrawsThirtyOneMagnitudesOfEitherSign) {
  const auto magnitudes = magnitudes_by_operation();
  const auto expect = [&](AugmentOperation operation, double largest) {
    const auto& values = magnitudes.at(operation);
    const std::set<double> different(values.begin(), values.end());
    EXPECT_EQ(different.size(), 61u) << static_cast<int>(operation);  // 0 and -0 are the same
    EXPECT_DOUBLE_EQ(*different.begin(), -largest);
    EXPECT_DOUBLE_EQ(*different.rbegin(), largest);
    double sum = 0;
    for (const double value : values) sum += value;
    // The variance is a third of the largest, squared, and a 30th more; 5 standard errors.
    EXPECT_NEAR(sum / static_cast<double>(values.size()), 0, 5 * 0.6 * largest / std::sqrt(values.size()));
  };
  for (const auto operation : {AugmentOperation::shear_x, AugmentOperation::shear_y, AugmentOperation::brightness,
                               AugmentOperation::color, AugmentOperation::contrast, AugmentOperation::sharpness}) {
    expect(operation, 0.99);
  }
  expect(AugmentOperation::translate_x, 32);
  expect(AugmentOperation::translate_y, 32);
  expect(AugmentOperation::rotate, 135);
}

TEST(TrivialAugment, DrawsMagnitudesWithoutASign) {
  const auto magnitudes = magnitudes_by_operation();
  std::map<double, int> bits;
  for (const double value : magnitudes.at(AugmentOperation::posterize)) ++bits[value];
  ASSERT_EQ(bits.size(), 7u);  // 8 to 2
  EXPECT_EQ(bits.begin()->first, 2);
  EXPECT_EQ(bits.rbegin()->first, 8);
  const auto draws = static_cast<double>(magnitudes.at(AugmentOperation::posterize).size());
  for (const auto& [kept, count] : bits) {
    // Of the 31 magnitudes the ends have 3 each, the others 5; 5 standard errors of a count.
    const double share = (kept == 2 || kept == 8 ? 3 : 5) / 31.0;
    EXPECT_NEAR(count, share * draws, 5 * std::sqrt(share * (1 - share) * draws)) << kept;
  }
  std::set<double> thresholds;
  for (const double value : magnitudes.at(AugmentOperation::solarize)) thresholds.insert(value);
  ASSERT_EQ(thresholds.size(), 31u);
  for (int step = 0; step <= 30; ++step) EXPECT_EQ(thresholds.count(8.5 * step), 1u) << step;
  for (const auto operation :
       {AugmentOperation::identity, AugmentOperation::autocontrast, AugmentOperation::equalize}) {
    for (const double value : magnitudes.at(operation)) EXPECT_EQ(value, 0);
  }
}

TEST(TrivialAugment, AppliesTheOperation) {
  // Few values, in the middle of the range, so that autocontrast and equalize change them.
  Image original = random_picture(40, 30, 3);
  for (auto& byte : original.pixels) byte = static_cast<std::uint8_t>(60 + byte / 4);
  const FillColor fill{1, 2, 3};
  const auto expect = [&](AugmentOperation operation, double magnitude, const std::function<void(Image&)>& change) {
    Image image = original;
    apply_augment({.operation = operation, .magnitude = magnitude}, image, fill);
    Image expected = original;
    change(expected);
    EXPECT_EQ(image.pixels, expected.pixels) << static_cast<int>(operation);
    EXPECT_EQ(image.pixels == original.pixels, operation == AugmentOperation::identity) << static_cast<int>(operation);
  };
  using enum AugmentOperation;
  expect(identity, 0, [](Image&) {});
  expect(shear_x, 0.4, [&](Image& image) { affine(image, shear_x_matrix(0.4), fill); });
  expect(shear_y, -0.4, [&](Image& image) { affine(image, shear_y_matrix(-0.4), fill); });
  expect(translate_x, -7.9, [&](Image& image) { affine(image, translation_matrix(-7, 0), fill); });
  expect(translate_y, 7.9, [&](Image& image) { affine(image, translation_matrix(0, 7), fill); });
  expect(rotate, 30, [&](Image& image) { affine(image, rotation_matrix(30, 40, 30), fill); });
  expect(brightness, -0.5, [](Image& image) { detail::adjust_brightness(image, 0.5); });
  expect(color, 0.5, [](Image& image) { detail::adjust_saturation(image, 1.5); });
  expect(contrast, 0.5, [](Image& image) { detail::adjust_contrast(image, 1.5); });
  expect(sharpness, 0.5, [](Image& image) { detail::adjust_sharpness(image, 1.5); });
  expect(posterize, 3, [](Image& image) { libtrain::data::detail::posterize(image, 3); });
  expect(solarize, 8.5, [](Image& image) { libtrain::data::detail::solarize(image, 8.5); });
  expect(autocontrast, 0, [](Image& image) { libtrain::data::detail::autocontrast(image); });
  expect(equalize, 0, [](Image& image) { libtrain::data::detail::equalize(image); });
}

// torchvision's RandAugment._augmentation_space for 31 bins at bin 9, for images of 331 x 662 pixels.
TEST(RandAugment, DrawsOneMagnitudeOfTorchvisionsRanges) {
  SampleRandom random(5, 6, 7);
  std::map<AugmentOperation, std::map<double, int>> counts;
  for (int i = 0; i < kDraws; ++i) {
    const auto steps = draw_rand_augment({}, 331, 662, random);
    ASSERT_EQ(steps.size(), 2u);
    for (const AugmentStep& step : steps) ++counts[step.operation][step.magnitude];
  }
  ASSERT_EQ(counts.size(), static_cast<std::size_t>(kAugmentOperations));
  const double each = 2.0 * kDraws / kAugmentOperations;
  const auto expect = [&](AugmentOperation operation, double magnitude, bool either_sign) {
    const auto& found = counts.at(operation);
    ASSERT_EQ(found.size(), either_sign ? 2u : 1u) << static_cast<int>(operation);
    EXPECT_NEAR(found.rbegin()->first, magnitude, 1e-12);
    EXPECT_NEAR(found.begin()->first, either_sign ? -magnitude : magnitude, 1e-12);
    for (const auto& [value, count] : found) {
      const double expected = each / (either_sign ? 2 : 1);
      EXPECT_NEAR(count, expected, 5 * std::sqrt(expected)) << static_cast<int>(operation);
    }
  };
  using enum AugmentOperation;
  expect(shear_x, 0.09, true);
  expect(shear_y, 0.09, true);
  expect(translate_x, 45, true);
  expect(translate_y, 90, true);
  expect(rotate, 9, true);
  for (const auto operation : {brightness, color, contrast, sharpness}) expect(operation, 0.27, true);
  expect(posterize, 7, false);     // 8 - round(9 / 7.5)
  expect(solarize, 178.5, false);  // 255 - 255 * 9 / 30
  for (const auto operation : {identity, autocontrast, equalize}) expect(operation, 0, false);
}

// 8 - round(i / ((n - 1) / 4)), halves to even.
TEST(RandAugment, KeepsBitsAsTorchvision) {
  const std::vector<double> of_seven{8, 7, 7, 6, 5, 5, 4};
  for (int magnitude = 0; magnitude < 7; ++magnitude) {
    SampleRandom random(1, 2, 3);
    const auto steps = draw_rand_augment({.operations = 200, .magnitude = magnitude, .magnitudes = 7}, 32, 32, random);
    int found = 0;
    for (const AugmentStep& step : steps) {
      if (step.operation != AugmentOperation::posterize) continue;
      ++found;
      EXPECT_EQ(step.magnitude, of_seven[static_cast<std::size_t>(magnitude)]) << magnitude;
    }
    EXPECT_GT(found, 0);
  }
}

TEST(RandAugment, RefusesMagnitudesThatDoNotExist) {
  SampleRandom random(0, 0, 0);
  const auto message = [&](const RandAugmentOptions& options) {
    return message_of<UsageError>([&] { draw_rand_augment(options, 32, 32, random); });
  };
  EXPECT_TRUE(draw_rand_augment({.operations = 0}, 32, 32, random).empty());
  EXPECT_THAT(message({.operations = -1}), HasSubstr("operations -1"));
  EXPECT_THAT(message({.magnitude = 31}), HasSubstr("magnitude 31 and magnitudes 31"));
  EXPECT_THAT(message({.magnitude = -1}), HasSubstr("magnitude -1"));
  EXPECT_THAT(message({.magnitude = 0, .magnitudes = 1}), HasSubstr("magnitudes 1;"));
}

TEST(ColorJitter, DrawsFactorsUniformlyAroundOne) {
  constexpr int kDraws = 20000;
  SampleRandom random(1, 2, 3);
  std::vector<double> brightness, contrast, hue;
  for (int i = 0; i < kDraws; ++i) {
    const ColorJitter jitter = draw_color_jitter({.brightness = 0.4, .contrast = 1.5, .hue = 0.1}, random);
    ASSERT_TRUE(jitter.brightness && jitter.contrast && jitter.hue);
    ASSERT_FALSE(jitter.saturation.has_value());
    ASSERT_TRUE(*jitter.brightness >= 0.6 && *jitter.brightness <= 1.4);
    ASSERT_TRUE(*jitter.contrast >= 0 && *jitter.contrast <= 2.5);
    ASSERT_TRUE(*jitter.hue >= -0.1 && *jitter.hue <= 0.1);
    brightness.push_back(*jitter.brightness);
    contrast.push_back(*jitter.contrast);
    hue.push_back(*jitter.hue);
  }
  EXPECT_LT(distance(brightness, uniform_over(0.6, 1.4)), 2.69);
  EXPECT_LT(distance(contrast, uniform_over(0, 2.5)), 2.69);
  EXPECT_LT(distance(hue, uniform_over(-0.1, 0.1)), 2.69);
}

TEST(ColorJitter, DrawsAllOrdersEquallyOften) {
  constexpr int kDraws = 24000;
  SampleRandom random(1, 2, 3);
  std::map<std::array<ColorChange, 4>, int> counts;
  for (int i = 0; i < kDraws; ++i) ++counts[draw_color_jitter({}, random).order];
  ASSERT_EQ(counts.size(), 24u);
  double chi_square = 0;
  for (const auto& [order, count] : counts) chi_square += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(chi_square, 57.1);  // the 99.99th percentile with 23 degrees of freedom
}

TEST(ColorJitter, AppliesTheChangesInTheirOrder) {
  const Image original = random_picture(12, 9, 3);
  const ColorJitter jitter{
      .order = {ColorChange::contrast, ColorChange::hue, ColorChange::brightness, ColorChange::saturation},
      .brightness = 1.6,
      .contrast = 0.5,
      .hue = 0.2};
  Image image = original;
  apply_color_jitter(jitter, image);
  Image expected = original;
  detail::adjust_contrast(expected, 0.5);
  detail::adjust_hue(expected, 0.2);
  detail::adjust_brightness(expected, 1.6);
  EXPECT_EQ(image.pixels, expected.pixels);
}

TEST(ColorJitter, RefusesExtentsBeyondTheirMeaning) {
  SampleRandom random(0, 0, 0);
  const auto refuses = [&](const ColorJitterOptions& options) {
    return message_of<UsageError>([&] { draw_color_jitter(options, random); });
  };
  EXPECT_THAT(refuses({.brightness = -0.1}), HasSubstr("brightness"));
  EXPECT_THAT(refuses({.contrast = std::nan("")}), HasSubstr("contrast"));
  EXPECT_THAT(refuses({.hue = 0.6}), HasSubstr("hue"));
}

constexpr int kErasures = 20000;

// A large image, so that rounding hardly matters, which is not square.
TEST(RandomErasing, DrawsAreasRatiosAndPlacesAsPublished) {
  constexpr int kWidth = 4000;
  constexpr int kHeight = 3800;
  SampleRandom random(8, 9, 10);
  std::vector<double> shares, log_ratios, columns, rows;
  for (int i = 0; i < kErasures; ++i) {
    const auto area = draw_random_erasing(kWidth, kHeight, {.probability = 0.25}, random);
    if (!area) continue;
    ASSERT_TRUE(area->x >= 0 && area->y >= 0 && area->x + area->width <= kWidth && area->y + area->height <= kHeight);
    shares.push_back(static_cast<double>(area->width) * area->height / kWidth / kHeight);
    log_ratios.push_back(std::log(static_cast<double>(area->height) / area->width));
    columns.push_back(static_cast<double>(area->x) / (kWidth - area->width));
    rows.push_back(static_cast<double>(area->y) / (kHeight - area->height));
  }
  EXPECT_NEAR(static_cast<double>(shares.size()), kErasures / 4.0, 5 * std::sqrt(kErasures * 0.25 * 0.75));
  // At most one percent of the draws is wider or higher than the image and repeated, which moves the distributions by
  // so much.
  const double most = 2.69 + 0.01 * std::sqrt(static_cast<double>(shares.size()));
  EXPECT_LT(distance(shares, uniform_over(0.02, 0.33)), most);
  EXPECT_LT(distance(log_ratios, uniform_over(std::log(0.3), std::log(3.3))), most);
  EXPECT_LT(distance(columns, uniform_over(0, 1)), most);
  EXPECT_LT(distance(rows, uniform_over(0, 1)), most);
}

TEST(RandomErasing, LeavesPicturesAloneThatNothingFits) {
  SampleRandom random(0, 0, 0);
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(draw_random_erasing(1, 1, {.probability = 1, .scale = {1, 1}}, random).has_value());
    EXPECT_FALSE(draw_random_erasing(100, 100, {.probability = 0}, random).has_value());
    EXPECT_TRUE(
        draw_random_erasing(100, 100, {.probability = 1, .scale = {0.1, 0.2}, .ratio = {1, 1}}, random).has_value());
  }
}

// A rectangle of so many pixels in a square image, with that ratio of height to width.
std::optional<Crop> rectangle(int side, double pixels, double ratio, SampleRandom& random) {
  const double share = pixels / (side * side);
  return draw_random_erasing(side, side, {.probability = 1, .scale = {share, share}, .ratio = {ratio, ratio}}, random);
}

TEST(RandomErasing, TakesTheRatioOfHeightToWidthAndRoundsHalfToEven) {
  SampleRandom random(1, 2, 3);
  const auto size = [&](double pixels, double ratio) {
    const auto area = rectangle(16, pixels, ratio, random);
    return area ? std::pair{area->width, area->height} : std::pair{-1, -1};
  };
  EXPECT_EQ(size(8, 2), (std::pair{2, 4}));
  EXPECT_EQ(size(8, 0.5), (std::pair{4, 2}));
  EXPECT_EQ(size(6.25, 1), (std::pair{2, 2}));   // sides of 2.5
  EXPECT_EQ(size(12.25, 1), (std::pair{4, 4}));  // of 3.5
}

TEST(RandomErasing, IsNeverAsWideOrAsHighAsThePictureAndReachesEveryPlace) {
  SampleRandom random(1, 2, 3);
  std::set<std::pair<int, int>> places;
  for (int i = 0; i < 200; ++i) {
    EXPECT_FALSE(rectangle(10, 50, 2, random).has_value());    // 10 rows of 5
    EXPECT_FALSE(rectangle(10, 50, 0.5, random).has_value());  // 5 rows of 10
    const auto area = rectangle(10, 81, 1, random);
    ASSERT_TRUE(area.has_value());
    EXPECT_EQ(*area, (Crop{area->x, area->y, 9, 9}));
    places.emplace(area->x, area->y);
  }
  EXPECT_EQ(places, (std::set<std::pair<int, int>>{{0, 0}, {0, 1}, {1, 0}, {1, 1}}));
}

// At a ratio of 4, a rectangle is lower than the image if it has less than a quarter of its pixels.
TEST(RandomErasing, GivesUpAfterTenDraws) {
  SampleRandom random(1, 2, 3);
  int given_up = 0;
  for (int i = 0; i < kErasures; ++i) {
    const auto area = draw_random_erasing(10'000, 10'000, {.probability = 1, .scale = {0, 1}, .ratio = {4, 4}}, random);
    if (!area) ++given_up;
  }
  const double share = std::pow(0.75, 10);
  EXPECT_NEAR(given_up, share * kErasures, 5 * std::sqrt(share * (1 - share) * kErasures));
}

TEST(RandomErasing, WritesConstantsIntoTheRectangleAlone) {
  const RandomErasingOptions options{.constant = {1, 2, -0.5f}};
  const Crop area{2, 1, 3, 2};
  SampleRandom random(0, 0, 0);
  for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
    std::vector<float> pixels(3 * 5 * 7, 9);
    const PixelTarget picture{.pixels = pixels.data(), .width = 7, .height = 5, .channels = 3, .layout = layout};
    erase(picture, area, options, random);
    for (int channel = 0; channel < 3; ++channel) {
      for (int y = 0; y < 5; ++y) {
        for (int x = 0; x < 7; ++x) {
          const bool inside = x >= 2 && x < 5 && y >= 1 && y < 3;
          const int index = layout == Layout::nhwc ? (y * 7 + x) * 3 + channel : (channel * 5 + y) * 7 + x;
          EXPECT_EQ(pixels[static_cast<std::size_t>(index)],
                    inside ? options.constant[static_cast<std::size_t>(channel)] : 9);
        }
      }
    }
  }
}

TEST(RandomErasing, WritesInThePicturesType) {
  const RandomErasingOptions options{.constant = {-1.5f, 0, 0}};
  SampleRandom random(0, 0, 0);
  std::vector<std::uint16_t> pixels(4);
  PixelTarget picture{.pixels = pixels.data(), .width = 2, .height = 2, .channels = 1, .type = PixelType::float16};
  erase(picture, {0, 0, 1, 2}, options, random);
  EXPECT_THAT(pixels, ::testing::ElementsAre(0xBE00, 0, 0xBE00, 0));  // -1.5 = -(1 + 512 / 1024)
  picture.type = PixelType::bfloat16;
  erase(picture, {1, 0, 1, 1}, options, random);
  EXPECT_EQ(pixels[1], std::bit_cast<std::uint32_t>(-1.5f) >> 16);
}

TEST(RandomErasing, WritesNormalNoiseOnRequest) {
  std::vector<float> pixels(100 * 100);
  const PixelTarget picture{.pixels = pixels.data(), .width = 100, .height = 100, .channels = 1};
  SampleRandom random(0, 0, 0);
  erase(picture, {0, 0, 100, 100}, {.value = ErasingValue::normal}, random);
  double sum = 0, squares = 0;
  for (const float value : pixels) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  EXPECT_NEAR(sum / 1e4, 0, 5 / 100.0);
  EXPECT_NEAR(squares / 1e4, 1, 5 * std::sqrt(2.0) / 100);
}

TEST(RandomErasing, RefusesBytesAndPlacesOutside) {
  SampleRandom random(0, 0, 0);
  std::vector<float> pixels(16);
  PixelTarget picture{.pixels = pixels.data(), .width = 4, .height = 4, .channels = 1};
  const auto refuses = [&](const Crop& area) {
    return message_of<UsageError>([&] { erase(picture, area, {}, random); });
  };
  EXPECT_THAT(refuses({2, 0, 3, 1}), HasSubstr("(2, 0)"));
  EXPECT_THAT(refuses({0, -1, 3, 1}), HasSubstr("(0, -1)"));
  picture.type = PixelType::uint8;
  EXPECT_THAT(refuses({0, 0, 1, 1}), HasSubstr("uint8"));
  EXPECT_THAT(message_of<UsageError>([&] { draw_random_erasing(4, 4, {.probability = 2}, random); }),
              HasSubstr("probability"));
}

}  // namespace

}  // namespace libtrain::data
