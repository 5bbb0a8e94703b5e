#include <libtrain/models/mask_rcnn/operators.hpp>

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <libtrain/models/mask_rcnn/detail/matching.hpp>

namespace libtrain::models {
namespace {

at::Tensor boxes_of(std::vector<double> numbers, at::ScalarType type = at::kFloat) {
  return torch::tensor(numbers, torch::kDouble).view({-1, 4}).to(type);
}

at::Tensor numbers_of(std::vector<std::int64_t> numbers) {
  return torch::tensor(numbers, torch::kLong);
}

at::Tensor random_boxes(std::int64_t count, double size) {
  const auto corners = torch::rand({count, 2}) * size * 0.8;
  return torch::cat({corners, corners + 2 + torch::rand({count, 2}) * size * 0.4}, 1);
}

TEST(BoxIou, IsTheSharedAreaDividedByTheCommonArea) {
  const auto iou = box_iou(boxes_of({0, 0, 4, 4}), boxes_of({0, 0, 4, 4, 2, 0, 6, 4, 4, 0, 8, 4, 1, 1, 3, 3}));
  EXPECT_TRUE(iou.allclose(torch::tensor({{1.0F, 1.0F / 3, 0.0F, 0.25F}})));
}

TEST(Nms, DropsWhatOverlapsWithABetterBox) {
  const auto boxes = boxes_of({0, 0, 10, 10, 0, 0, 10, 9, 20, 0, 30, 10, 0, 0, 10, 4});
  const auto scores = torch::tensor({0.5F, 0.9F, 0.7F, 0.3F});
  EXPECT_TRUE(nms(boxes, scores, torch::zeros({4}, torch::kLong), 0.5).equal(numbers_of({1, 2, 3})));
}

TEST(Nms, KeepsABoxThatOverlapsByTheThresholdItself) {
  const auto boxes = boxes_of({0, 0, 10, 10, 0, 0, 10, 5});
  const auto scores = torch::tensor({0.5F, 0.4F});
  const auto groups = torch::zeros({2}, torch::kLong);
  EXPECT_EQ(nms(boxes, scores, groups, 0.5).size(0), 2);
  EXPECT_EQ(nms(boxes, scores, groups, 0.4999).size(0), 1);
}

// A box that was dropped drops no other.
TEST(Nms, ComparesWithKeptBoxesOnly) {
  const auto boxes = boxes_of({0, 0, 10, 10, 4, 0, 14, 10, 8, 0, 18, 10});
  const auto scores = torch::tensor({0.9F, 0.8F, 0.7F});
  EXPECT_TRUE(nms(boxes, scores, torch::zeros({3}, torch::kLong), 0.3).equal(numbers_of({0, 2})));
}

TEST(Nms, KeepsGroupsApartAndSortsThemTogether) {
  const auto boxes = boxes_of({0, 0, 10, 10, 0, 0, 10, 10, 0, 0, 10, 10, 0, 0, 10, 10});
  const auto scores = torch::tensor({0.1F, 0.4F, 0.3F, 0.2F});
  EXPECT_TRUE(nms(boxes, scores, numbers_of({7, -1, 7, 3}), 0.5).equal(numbers_of({1, 2, 3})));
}

TEST(Nms, TakesTheFirstOfEqualScores) {
  const auto boxes = boxes_of({0, 0, 10, 10, 0, 0, 10, 10});
  EXPECT_TRUE(nms(boxes, torch::ones({2}), torch::zeros({2}, torch::kLong), 0.5).equal(numbers_of({0})));
}

TEST(Nms, TakesNoBoxes) {
  EXPECT_EQ(nms(torch::zeros({0, 4}), torch::zeros({0}), torch::zeros({0}, torch::kLong), 0.5).size(0), 0);
  EXPECT_ANY_THROW(nms(torch::zeros({2, 4}), torch::zeros({1}), torch::zeros({2}, torch::kLong), 0.5));
}

TEST(MatchBoxes, FindsTheLargestOverlap) {
  const auto truth = boxes_of({0, 0, 10, 10, 20, 0, 30, 10});
  const auto boxes = boxes_of({0, 0, 10, 9, 20, 0, 30, 5, 21, 0, 30, 10, 40, 0, 50, 10});
  EXPECT_TRUE(
      match_boxes(truth, boxes, {.at_least = 0.7, .below = 0.3}).equal(numbers_of({0, kBetween, 1, kBackground})));
}

// In float32, 7/10 is not less than 0.7.
TEST(MatchBoxes, TakesAnOverlapAtTheBound) {
  EXPECT_TRUE(match_boxes(boxes_of({0, 0, 10, 10}), boxes_of({0, 0, 10, 7}), {.at_least = 0.7, .below = 0.3})
                  .equal(numbers_of({0})));
}

TEST(MatchBoxes, GivesEachTrueBoxItsBest) {
  const auto truth = boxes_of({0, 0, 10, 10, 20, 0, 30, 10});
  // The second and the third overlap equally with the first true box.
  const auto boxes = boxes_of({0, 0, 1, 10, 0, 0, 2, 10, 8, 0, 10, 10, 40, 0, 50, 10});
  EXPECT_TRUE(match_boxes(truth, boxes, {.at_least = 0.7, .below = 0.3, .keep_best = true})
                  .equal(numbers_of({kBackground, 0, 0, kBackground})));
}

TEST(MatchBoxes, CallsAllBackgroundWithoutTrueBoxes) {
  EXPECT_TRUE(match_boxes(torch::zeros({0, 4}), random_boxes(3, 50), {.keep_best = true})
                  .equal(numbers_of({kBackground, kBackground, kBackground})));
}

TEST(MatchBoxes, AgreesWithTheMatrixOfAllOverlaps) {
  torch::manual_seed(1);
  const auto truth = random_boxes(7, 100);
  const auto boxes = random_boxes(301, 100);
  const auto [overlaps, best] = box_iou(truth, boxes).max(0);
  const auto expected = best.masked_fill(overlaps.lt(0.4), kBetween).masked_fill(overlaps.lt(0.2), kBackground);
  EXPECT_TRUE(match_boxes(truth, boxes, {.at_least = 0.4, .below = 0.2}).equal(expected));
}

// What other devices compute.
TEST(MatchBoxes, GivesTheSameByTensorOperators) {
  torch::manual_seed(3);
  const auto boxes = torch::cat({random_boxes(300, 100), boxes_of({0, 0, 1, 10, 0, 0, 2, 10, 8, 0, 10, 10})});
  for (const std::int64_t objects : {0, 1, 9}) {
    const auto truth = torch::cat({random_boxes(objects, 100), boxes_of({0, 0, 10, 10})}).slice(0, 0, objects);
    for (const bool keep_best : {false, true}) {
      EXPECT_TRUE(detail::match_boxes_by_matrix(truth, boxes, 0.6, 0.2, keep_best)
                      .equal(match_boxes(truth, boxes, {.at_least = 0.6, .below = 0.2, .keep_best = keep_best})));
    }
  }
}

TEST(SampleLabels, GivesTheSameByTensorOperators) {
  torch::manual_seed(4);
  for (const std::int64_t size : {0, 5, 1000}) {
    const auto labels = torch::randint(-1, 3, {size}, torch::kLong);
    for (const std::int64_t seed : {std::int64_t{1}, std::int64_t{-7} << 50}) {
      EXPECT_TRUE(detail::sample_labels_by_keys(labels, 64, 0.25, seed)
                      .equal(sample_labels(labels, 64, 0.25, static_cast<std::uint64_t>(seed))));
    }
  }
}

TEST(SampleLabels, HasAtMostTheShareOfPositives) {
  const auto labels = torch::cat({torch::full({100}, 5), torch::zeros({900}), torch::full({50}, -1)}).to(torch::kLong);
  const auto chosen = sample_labels(labels, 64, 0.25, 12345);
  EXPECT_EQ(chosen.size(0), 64);
  EXPECT_EQ(labels.index_select(0, chosen).gt(0).sum().item<int>(), 16);
  EXPECT_EQ(labels.index_select(0, chosen).lt(0).sum().item<int>(), 0);
  EXPECT_TRUE(chosen.diff().gt(0).all().item<bool>());
}

TEST(SampleLabels, FillsUpWithNegativesAndTakesWhatThereIs) {
  const auto labels = numbers_of({1, 0, 0, -1, 0});
  EXPECT_TRUE(sample_labels(labels, 3, 0.5, 1).size(0) == 3);
  EXPECT_TRUE(sample_labels(labels, 10, 0.5, 1).equal(numbers_of({0, 1, 2, 4})));
  EXPECT_EQ(sample_labels(numbers_of({-1, -1}), 10, 0.5, 1).size(0), 0);
}

TEST(SampleLabels, DependsOnTheSeedAndChoosesEachEquallyOften) {
  const auto labels = torch::zeros({40}, torch::kLong);
  EXPECT_TRUE(sample_labels(labels, 10, 0.5, 1 << 20).equal(sample_labels(labels, 10, 0.5, 1 << 20)));
  auto counts = torch::zeros({40});
  constexpr int kDraws = 4000;
  for (std::uint64_t draw = 0; draw < kDraws; ++draw) {
    counts.index_add_(0, sample_labels(labels, 10, 0.5, draw * 0x9e3779b97f4a7c15U), torch::ones({10}));
  }
  // Expected 1,000 each, with a standard deviation of 27.
  EXPECT_LT((counts - kDraws / 4).abs().max().item<float>(), 150);
}

// A map whose value is a linear function is interpolated exactly: a bin's average is the value at its centre.
TEST(RoiAlign, AveragesALinearMapExactly) {
  const auto y = torch::arange(20, torch::kDouble).view({20, 1}).expand({20, 30});
  const auto x = torch::arange(30, torch::kDouble).view({1, 30}).expand({20, 30});
  const auto map = torch::stack({2 * x + 3 * y, x - y}).unsqueeze(0);
  const auto boxes = boxes_of({4, 8, 32, 48}, at::kDouble);
  const auto crop = roi_align({map}, boxes, numbers_of({0}), {.output_size = 2, .sampling_ratio = 3, .strides = {4}});
  // Cells 1 to 8 and 2 to 12: centres of the bins at 2.75 and 6.25, 4.5 and 9.5.
  const auto expected =
      torch::tensor({{{2 * 2.75 + 3 * 4.5, 2 * 6.25 + 3 * 4.5}, {2 * 2.75 + 3 * 9.5, 2 * 6.25 + 3 * 9.5}},
                     {{2.75 - 4.5, 6.25 - 4.5}, {2.75 - 9.5, 6.25 - 9.5}}},
                    torch::kDouble);
  EXPECT_TRUE(crop[0].allclose(expected, 1e-12, 1e-12));
}

TEST(RoiAlign, TakesEachBoxFromTheMapOfItsSizeAndImage) {
  std::vector<at::Tensor> maps;
  for (int level = 0; level < 4; ++level) {
    const auto of_images = torch::tensor({10.0F * static_cast<float>(level), 10.0F * static_cast<float>(level) + 1});
    maps.push_back(of_images.view({2, 1, 1, 1}).expand({2, 1, 256 >> level, 256 >> level}).contiguous());
  }
  const auto boxes = boxes_of({0, 0, 50, 50, 0, 0, 112, 112, 0, 0, 223, 223, 0, 0, 224, 224, 0, 0, 480, 480});
  const auto crops = roi_align(maps, boxes, numbers_of({0, 1, 0, 1, 1}), {.output_size = 1});
  EXPECT_TRUE(crops.flatten().equal(torch::tensor({0.0F, 11.0F, 10.0F, 21.0F, 31.0F}))) << crops.flatten();
}

struct RoiCase {
  std::vector<at::Tensor> maps;
  at::Tensor boxes, images;
};

RoiCase random_case(at::ScalarType type, at::MemoryFormat format, std::int64_t channels = 5) {
  torch::manual_seed(2);
  RoiCase each;
  for (const std::int64_t side : {40, 20, 10, 5}) {
    each.maps.push_back(torch::randn({2, channels, side, side + 3}, torch::kDouble).to(type).contiguous(format));
  }
  // Some reach over the border, and some are narrower than a cell.
  each.boxes = torch::cat({random_boxes(12, 160), random_boxes(4, 60) * 6 - 100, boxes_of({3, 3, 4, 90})});
  each.boxes = torch::cat({torch::minimum(each.boxes.slice(1, 0, 2), each.boxes.slice(1, 2)),
                           torch::maximum(each.boxes.slice(1, 0, 2), each.boxes.slice(1, 2))},
                          1);
  each.images = torch::arange(each.boxes.size(0)).remainder(2);
  return each;
}

TEST(RoiAlign, HasTheGradientOfItsFiniteDifferences) {
  for (const std::int64_t sampling_ratio : {0, 2}) {
    for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      auto each = random_case(at::kDouble, format);
      for (auto& map : each.maps) map.requires_grad_();
      const auto value = [&] {
        const auto crops =
            roi_align(each.maps, each.boxes, each.images, {.output_size = 3, .sampling_ratio = sampling_ratio});
        const auto weights = torch::arange(crops.numel(), torch::kDouble).sin().view(crops.sizes());
        return (crops * weights).sum();
      };
      value().backward();
      const at::NoGradGuard no_grad;
      // The operator is linear: differences of any size are exact.
      for (auto& map : each.maps) {
        const auto direction = torch::randn_like(map);
        const auto before = value();
        map.add_(direction);
        const auto difference = value() - before;
        map.sub_(direction);
        EXPECT_NEAR(difference.item<double>(), (map.grad() * direction).sum().item<double>(), 1e-9);
        EXPECT_EQ(map.grad().suggest_memory_format(), map.suggest_memory_format());
      }
    }
  }
}

TEST(RoiAlign, ComputesTheSameInBothFormats) {
  const auto rows = random_case(at::kFloat, at::MemoryFormat::Contiguous, 33);
  const auto last = random_case(at::kFloat, at::MemoryFormat::ChannelsLast, 33);
  const auto expected = roi_align(rows.maps, rows.boxes, rows.images, {});
  const auto actual = roi_align(last.maps, last.boxes, last.images, {});
  EXPECT_TRUE(expected.is_contiguous());
  EXPECT_TRUE(actual.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(actual.allclose(expected, 1e-5, 1e-6));
}

TEST(RoiAlign, RoundsBfloat16AtTheEndOnly) {
  auto each = random_case(at::kBFloat16, at::MemoryFormat::ChannelsLast);
  auto wide = each;
  for (auto& map : wide.maps) map = map.to(torch::kFloat);
  const auto actual = roi_align(each.maps, each.boxes, each.images, {});
  EXPECT_EQ(actual.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(actual.equal(roi_align(wide.maps, wide.boxes, wide.images, {}).to(torch::kBFloat16)));
  EXPECT_ANY_THROW(roi_align({torch::zeros({1, 1, 4, 4}, torch::kLong)}, each.boxes, each.images, {.strides = {4}}));
}

TEST(RoiAlign, HasTheSameGradientForAnyNumberOfThreads) {
  const auto gradient_with = [](int threads) {
    const int before = at::get_num_threads();
    at::set_num_threads(threads);
    auto each = random_case(at::kFloat, at::MemoryFormat::ChannelsLast, 40);
    for (auto& map : each.maps) map.requires_grad_();
    roi_align(each.maps, each.boxes, each.images, {}).square().sum().backward();
    at::set_num_threads(before);
    return each.maps.front().grad();
  };
  const auto expected = gradient_with(1);
  for (const int threads : {2, 3}) EXPECT_TRUE(gradient_with(threads).equal(expected));
}

TEST(RoiAlign, TakesNoBoxes) {
  auto map = torch::ones({1, 3, 8, 8}).requires_grad_();
  const auto crops = roi_align({map}, torch::zeros({0, 4}), torch::zeros({0}, torch::kLong), {.strides = {4}});
  EXPECT_EQ(crops.sizes(), at::IntArrayRef({0, 3, 7, 7}));
  crops.sum().backward();
  EXPECT_TRUE(map.grad().equal(torch::zeros_like(map)));
}

TEST(RoiAlign, HasNoSecondDerivative) {
  const auto map = torch::ones({1, 3, 8, 8}).requires_grad_();
  const auto crops = roi_align({map}, boxes_of({0, 0, 4, 4}), numbers_of({0}), {.strides = {4}});
  EXPECT_THROW(torch::autograd::grad({crops.sum()}, {map}, {}, /*retain_graph=*/true, /*create_graph=*/true),
               c10::Error);
}

TEST(RoiAlign, TakesNothingFromAnInfiniteBox) {
  for (const auto layout : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    const auto map = torch::ones({1, 16, 8, 8}).contiguous(layout);
    const auto box = torch::tensor({{1.0F, 1.0F, std::numeric_limits<float>::infinity(), 5.0F}});
    const auto crops = roi_align({map}, box, numbers_of({0}), {.strides = {4}});
    EXPECT_TRUE(crops.equal(torch::zeros_like(crops)));
  }
}

TEST(RoiAlign, RefusesAnImageThatIsNotThere) {
  const auto map = torch::ones({1, 3, 8, 8});
  EXPECT_ANY_THROW(roi_align({map}, boxes_of({0, 0, 4, 4}), numbers_of({1}), {.strides = {4}}));
  EXPECT_ANY_THROW(roi_align({map}, boxes_of({0, 0, 4, 4}), numbers_of({0}), {}));
}

TEST(MaskTargets, AreTheShareOfTheMaskInEachCell) {
  auto masks = torch::zeros({2, 8, 8}, torch::kByte);
  masks[1].slice(0, 2, 6).slice(1, 2, 6).fill_(1);
  const auto wanted = mask_targets(masks, boxes_of({2, 2, 6, 6, 2, 2, 6, 6}), numbers_of({0, 1}), 2);
  EXPECT_TRUE(wanted[0].equal(torch::zeros({2, 2})));
  // Samples at 2.5, 3.5, 4.5 and 5.5: the last are halfway to a pixel outside of the mask.
  EXPECT_TRUE(wanted[1].allclose(torch::tensor({{1.0F, 0.75F}, {0.75F, 0.5625F}}))) << wanted[1];
}

}  // namespace
}  // namespace libtrain::models
