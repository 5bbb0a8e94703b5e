#include <libtrain/data/image/resize.hpp>

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace libtrain::data::detail {
namespace {

constexpr int kOne = 1 << 22;

std::vector<int> weights_of(const ResizeWeights& weights, std::size_t output) {
  const std::int32_t* first = weights.weights() + output * weights.taps();
  return {first, first + weights.taps()};
}

TEST(ResizeWeights, OfTheSameSizeTakeEachElementAlone) {
  ResizeWeights weights;
  weights.compute({.source_size = 5, .begin = 0, .end = 5, .output_size = 5, .first_output = 0, .outputs = 5});
  ASSERT_EQ(weights.outputs(), 5u);
  EXPECT_EQ(weights.source_count(), 5u);
  for (std::size_t output = 0; output < 5; ++output) {
    EXPECT_EQ(weights.begins()[output], output);
    EXPECT_EQ(weights_of(weights, output), (std::vector{kOne, 0}));
  }
}

// Half the size: the triangle reaches 2 elements to either side of the centre between two elements, whose distances
// from it are 1/4 and 3/4 of that: weights 3 and 1, over 8.
TEST(ResizeWeights, OfHalfTheSizeAreOneThreeThreeOne) {
  ResizeWeights weights;
  weights.compute({.source_size = 8, .begin = 0, .end = 8, .output_size = 4, .first_output = 0, .outputs = 4});
  EXPECT_EQ(weights_of(weights, 1), (std::vector{kOne / 8, 3 * kOne / 8, 3 * kOne / 8, kOne / 8}));
  EXPECT_EQ(weights.begins()[1], 1u);
  // At the ends what is outside is left out, and the rest normalised.
  EXPECT_EQ(weights_of(weights, 0), (std::vector{1797559, 1797559, 599186, 0}));
  EXPECT_EQ(weights_of(weights, 3)[0], 599186);
}

// Twice the size: centres are a quarter of an element beside one element and three quarters beside another.
TEST(ResizeWeights, OfTwiceTheSizeInterpolate) {
  ResizeWeights weights;
  weights.compute({.source_size = 4, .begin = 0, .end = 4, .output_size = 8, .first_output = 0, .outputs = 8});
  const auto second = weights_of(weights, 2);
  EXPECT_EQ(weights.begins()[2], 0u);
  EXPECT_EQ(second[0], kOne / 4);
  EXPECT_EQ(second[1], 3 * kOne / 4);
}

TEST(ResizeWeights, AddUpToOneWithinRounding) {
  ResizeWeights weights;
  for (const int size : {1, 2, 7, 100, 223, 1000}) {
    weights.compute(
        {.source_size = 300, .begin = 10.25f, .end = 287.5f, .output_size = size, .first_output = 0, .outputs = size});
    for (std::size_t output = 0; output < weights.outputs(); ++output) {
      std::int64_t sum = 0;
      for (const int weight : weights_of(weights, output)) sum += weight;
      EXPECT_NEAR(static_cast<double>(sum), kOne, 0.5 * static_cast<double>(weights.taps())) << size;
    }
  }
}

TEST(ResizeWeights, OfAPartAreThatPartOfAll) {
  ResizeWeights all, part;
  all.compute({.source_size = 500, .begin = 0, .end = 500, .output_size = 341, .first_output = 0, .outputs = 341});
  part.compute({.source_size = 500, .begin = 0, .end = 500, .output_size = 341, .first_output = 58, .outputs = 224});
  EXPECT_EQ(part.outputs(), 224u);
  EXPECT_LT(part.source_count(), 340u);
  for (std::size_t output = 0; output < 224; ++output) {
    EXPECT_EQ(part.begins()[output] + static_cast<std::size_t>(part.first()), all.begins()[output + 58]);
    EXPECT_EQ(weights_of(part, output), weights_of(all, output + 58));
  }
}

TEST(ResizeWeights, NeedOnlyTheSurroundingsOfTheirInterval) {
  ResizeWeights weights;
  weights.compute(
      {.source_size = 1000, .begin = 400, .end = 600, .output_size = 100, .first_output = 0, .outputs = 100});
  // The outermost centres are at 401 and 599, the triangle reaches 2 elements.
  EXPECT_EQ(weights.first(), 399);
  EXPECT_EQ(weights.source_count(), 202u);
}

}  // namespace
}  // namespace libtrain::data::detail
