// Mask R-CNN and its operators compute on a GPU what they compute on the CPU.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <libtrain/models/mask_rcnn/image_batch.hpp>
#include <libtrain/models/mask_rcnn/mask_rcnn.hpp>
#include <libtrain/models/mask_rcnn/operators.hpp>

#include <tests/support/on_ranks.hpp>

namespace libtrain::models {
namespace {

using test::device;

at::Tensor on_gpu(const at::Tensor& tensor) {
  return tensor.to(device());
}

std::vector<at::Tensor> on_gpu(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const auto& tensor : tensors) result.push_back(on_gpu(tensor));
  return result;
}

at::Tensor on_host(const at::Tensor& tensor) {
  return tensor.to(torch::kCPU);
}

// The largest difference, relative to the largest number.
double deviation(const at::Tensor& actual, const at::Tensor& expected) {
  EXPECT_EQ(actual.sizes(), expected.sizes());
  EXPECT_EQ(actual.scalar_type(), expected.scalar_type());
  EXPECT_TRUE(actual.isfinite().all().item<bool>());
  if (expected.numel() == 0) return 0;
  const auto wanted = expected.to(torch::kDouble);
  const double largest = wanted.abs().max().item<double>();
  return (on_host(actual).to(torch::kDouble) - wanted).abs().max().item<double>() / std::max(largest, 1e-30);
}

// Some reach over the border of an image of `size` pixels, and some are narrower than a cell of 4.
at::Tensor random_boxes(std::int64_t count, double size) {
  const auto corners = torch::rand({count, 2}) * size * 1.1 - size * 0.1;
  return torch::cat({corners, corners + 1 + torch::rand({count, 2}).square() * size}, 1);
}

TEST(NmsOnGpu, KeepsTheSameBoxes) {
  torch::manual_seed(1);
  for (const std::int64_t count : {0, 1, 63, 64, 65, 1000, 8000}) {
    const auto boxes = random_boxes(count, 300);
    const auto scores = torch::rand({count}).mul(100).floor();  // with equal ones
    const auto groups = torch::randint(0, 3, {count}, torch::kLong);
    for (const double threshold : {0.1, 0.5, 0.9}) {
      const auto expected = nms(boxes, scores, groups, threshold);
      EXPECT_TRUE(on_host(nms(on_gpu(boxes), on_gpu(scores), on_gpu(groups), threshold)).equal(expected))
          << count << " boxes, threshold " << threshold;
    }
  }
}

TEST(MatchBoxesOnGpu, FindsTheSameMatches) {
  torch::manual_seed(2);
  const auto boxes = random_boxes(3000, 200);
  for (const std::int64_t objects : {0, 1, 30}) {
    const auto truth = random_boxes(objects, 200);
    for (const bool keep_best : {false, true}) {
      const MatchOptions options{.at_least = 0.6, .below = 0.3, .keep_best = keep_best};
      EXPECT_TRUE(
          on_host(match_boxes(on_gpu(truth), on_gpu(boxes), options)).equal(match_boxes(truth, boxes, options)));
    }
  }
}

TEST(SampleLabelsOnGpu, ChoosesTheSame) {
  torch::manual_seed(3);
  for (const std::int64_t size : {0, 5, 20000}) {
    const auto labels = torch::randint(-1, 3, {size}, torch::kLong);
    for (const std::uint64_t seed : {std::uint64_t{1}, std::uint64_t{0x9e3779b97f4a7c15}}) {
      EXPECT_TRUE(
          on_host(sample_labels(on_gpu(labels), 256, 0.25, seed)).equal(sample_labels(labels, 256, 0.25, seed)));
    }
  }
}

struct CropCase {
  at::ScalarType type;
  at::MemoryFormat format;
  RoiAlignOptions options;
  double bound;
};

TEST(RoiAlignOnGpu, ComputesTheSameCropsAndGradients) {
  std::vector<CropCase> cases;
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    cases.push_back({at::kDouble, format, {}, 1e-12});
    cases.push_back({at::kDouble, format, {.output_size = 14, .sampling_ratio = 0}, 1e-12});
    cases.push_back({at::kDouble, format, {.output_size = 19, .sampling_ratio = 1}, 1e-12});
    cases.push_back({at::kFloat, format, {}, 1e-5});
    cases.push_back({at::kBFloat16, format, {}, 1e-2});
  }
  for (const auto& each : cases) {
    torch::manual_seed(4);
    std::vector<at::Tensor> maps;
    for (const std::int64_t side : {64, 32, 16, 8}) {
      maps.push_back(torch::randn({2, 40, side, side + 5}, torch::kDouble).to(each.type).contiguous(each.format));
    }
    const auto boxes = random_boxes(700, 256);
    const auto images = torch::randint(0, 2, {700}, torch::kLong);
    const auto run = [&](const std::vector<at::Tensor>& inputs, const at::Tensor& all_boxes, const at::Tensor& of) {
      std::vector<at::Tensor> leaves;
      for (const auto& input : inputs) leaves.push_back(input.detach().clone().requires_grad_());
      const auto crops = roi_align(leaves, all_boxes, of, each.options);
      const auto weights = torch::arange(crops.numel(), torch::kDouble).sin().view(crops.sizes()).to(each.type);
      crops.backward(weights.contiguous(each.format).to(crops.device()));
      std::vector<at::Tensor> results{crops.detach()};
      for (const auto& leaf : leaves) results.push_back(leaf.grad());
      return results;
    };
    const auto expected = run(maps, boxes, images);
    const auto actual = run(on_gpu(maps), on_gpu(boxes), on_gpu(images));
    const auto again = run(on_gpu(maps), on_gpu(boxes), on_gpu(images));
    for (std::size_t k = 0; k < expected.size(); ++k) {
      EXPECT_LE(deviation(actual[k], expected[k]), each.bound)
          << each.type << ", " << each.format << ", size " << each.options.output_size << ", result " << k;
      EXPECT_EQ(actual[k].suggest_memory_format(), expected[k].suggest_memory_format());
      EXPECT_TRUE(actual[k].equal(again[k]));
    }
  }
}

TEST(RoiAlignOnGpu, GivesAMapWithoutBoxesAGradientOfZeros) {
  auto map = torch::ones({1, 3, 8, 8}, device()).requires_grad_();
  roi_align({map}, torch::zeros({0, 4}, device()), torch::zeros({0}, torch::dtype(torch::kLong).device(device())),
            {.strides = {4}})
      .sum()
      .backward();
  EXPECT_TRUE(map.grad().equal(torch::zeros_like(map)));
}

TEST(MaskTargetsOnGpu, AreTheSame) {
  torch::manual_seed(5);
  const auto masks = torch::randint(0, 2, {9, 120, 150}, torch::kByte);
  const auto boxes = random_boxes(200, 120);
  const auto matches = torch::randint(0, 9, {200}, torch::kLong);
  EXPECT_LE(deviation(mask_targets(on_gpu(masks), on_gpu(boxes), on_gpu(matches), 28),
                      mask_targets(masks, boxes, matches, 28)),
            1e-4);  // places of 100 pixels in float32
}

ImageBatch random_batch(at::ScalarType type) {
  torch::manual_seed(6);
  return {.images = torch::randn({2, 3, 96, 128}, torch::kDouble).to(type), .sizes = {{96, 128}, {90, 120}}};
}

std::vector<ObjectTargets> random_targets() {
  std::vector<ObjectTargets> targets;
  for (const std::int64_t objects : {4, 0}) {
    ObjectTargets each{.boxes = torch::zeros({objects, 4}),
                       .labels = torch::randint(1, 4, {objects}, torch::kLong),
                       .masks = torch::randint(0, 2, {objects, 96, 128}, torch::kByte),
                       .seed = sampling_seed(1, 2, objects)};
    for (std::int64_t k = 0; k < objects; ++k) {
      const auto offset = 9.0F * static_cast<float>(k);
      each.boxes[k] = torch::tensor({5 + offset, 8 + offset, 40 + 2 * offset, 44 + offset});
    }
    targets.push_back(each);
  }
  return targets;
}

// In double precision, in which rounding at a threshold does not choose another sample.
MaskRcnn make_model() {
  torch::manual_seed(7);
  auto model = mask_rcnn_tiny({.classes = 4});
  model->to(torch::kDouble);
  return model;
}

TEST(MaskRcnnOnGpu, HasTheSameLossesAndGradients) {
  const auto run = [](c10::Device place) {
    auto model = make_model();
    model->to(place);
    auto batch = random_batch(at::kDouble);
    batch.images = batch.images.to(place);
    auto targets = random_targets();
    for (auto& each : targets) {
      each.boxes = each.boxes.to(place);
      each.labels = each.labels.to(place);
      each.masks = each.masks.to(place);
    }
    const auto losses = model->losses(batch, targets);
    losses.sum().backward();
    std::vector<at::Tensor> results{losses.objectness, losses.proposal_boxes, losses.classifier, losses.boxes,
                                    losses.masks};
    for (auto& result : results) result = result.detach();
    for (const auto& parameter : model->parameters()) results.push_back(parameter.grad());
    return results;
  };
  const auto expected = run(torch::kCPU);
  const auto actual = run(device());
  ASSERT_EQ(actual.size(), expected.size());
  // The targets of masks are float32.
  for (std::size_t k = 0; k < expected.size(); ++k) EXPECT_LE(deviation(actual[k], expected[k]), 1e-6) << k;
}

TEST(MaskRcnnOnGpu, DetectsTheSame) {
  const torch::NoGradGuard no_grad;
  auto model = make_model();
  model->eval();
  auto batch = random_batch(at::kDouble);
  const auto expected = model->detect(batch);
  model->to(device());
  batch.images = on_gpu(batch.images);
  const auto actual = model->detect(batch);
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t k = 0; k < expected.size(); ++k) {
    ASSERT_EQ(actual[k].labels.size(0), expected[k].labels.size(0));
    EXPECT_GT(expected[k].labels.size(0), 0);
    EXPECT_TRUE(on_host(actual[k].labels).equal(expected[k].labels));
    EXPECT_LE(deviation(actual[k].boxes, expected[k].boxes), 1e-5);
    EXPECT_LE(deviation(actual[k].scores, expected[k].scores), 1e-5);
    EXPECT_LE(deviation(actual[k].masks, expected[k].masks), 1e-5);
    EXPECT_LE(deviation(paste_masks(actual[k].masks, actual[k].boxes, {96, 128}),
                        paste_masks(expected[k].masks, expected[k].boxes, {96, 128})),
              1e-3);
  }
}

}  // namespace
}  // namespace libtrain::models
