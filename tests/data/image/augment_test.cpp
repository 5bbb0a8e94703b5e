#include <libtrain/data/image/augment.hpp>

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/image/color.hpp>

#include <tests/data/image/pictures.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using test::random_picture;
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
  // Of few values, in the middle: what autocontrast and equalize have something to do with.
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
  expect(brightness, -0.5, [](Image& image) { adjust_brightness(image, 0.5); });
  expect(color, 0.5, [](Image& image) { adjust_saturation(image, 1.5); });
  expect(contrast, 0.5, [](Image& image) { adjust_contrast(image, 1.5); });
  expect(sharpness, 0.5, [](Image& image) { adjust_sharpness(image, 1.5); });
  expect(posterize, 3, [](Image& image) { libtrain::data::posterize(image, 3); });
  expect(solarize, 8.5, [](Image& image) { libtrain::data::solarize(image, 8.5); });
  expect(autocontrast, 0, [](Image& image) { libtrain::data::autocontrast(image); });
  expect(equalize, 0, [](Image& image) { libtrain::data::equalize(image); });
}

// torchvision's RandAugment._augmentation_space for 31 bins at bin 9, of pictures of 331 x 662 pixels.
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
  EXPECT_THAT(message({.operations = -1}), HasSubstr("-1 operations"));
  EXPECT_THAT(message({.magnitude = 31}), HasSubstr("magnitude 31 among 31"));
  EXPECT_THAT(message({.magnitude = -1}), HasSubstr("magnitude -1"));
  EXPECT_THAT(message({.magnitude = 0, .magnitudes = 1}), HasSubstr("among 1"));
}

}  // namespace
}  // namespace libtrain::data
