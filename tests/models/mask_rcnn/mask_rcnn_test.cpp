#include <libtrain/models/mask_rcnn/mask_rcnn.hpp>

#include <stdexcept>
#include <string>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <libtrain/models/frozen_batch_norm.hpp>
#include <libtrain/models/mask_rcnn/image_batch.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::models {
namespace {

using test::message_of;

std::int64_t count_parameters(const torch::nn::Module& model) {
  std::int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  return count;
}

ImageBatch random_batch(std::int64_t images) {
  torch::manual_seed(4);
  ImageBatch batch{.images = torch::randn({images, 3, 96, 128}), .sizes = {}};
  for (std::int64_t k = 0; k < images; ++k) batch.sizes.push_back({96 - 4 * k, 128 - 7 * k});
  return batch;
}

ObjectTargets targets_with(std::int64_t objects) {
  ObjectTargets targets{.boxes = torch::zeros({objects, 4}),
                        .labels = torch::ones({objects}, torch::kLong),
                        .masks = torch::zeros({objects, 96, 128}, torch::kByte),
                        .seed = 77U << 20};
  for (std::int64_t k = 0; k < objects; ++k) {
    targets.boxes[k] = torch::tensor({10.0F, 12.0F, 40.0F + 5.0F * static_cast<float>(k), 50.0F});
    targets.masks[k].slice(0, 12, 50).slice(1, 10, 40 + 5 * k).fill_(1);
  }
  return targets;
}

std::string refusal(MaskRcnn& model, const ImageBatch& batch, const std::vector<ObjectTargets>& targets) {
  return message_of<std::invalid_argument>([&] { model->losses(batch, targets); });
}

TEST(MaskRcnn, HasAsManyParametersAsTorchvisions) {
  auto model = mask_rcnn_resnet50_fpn();
  EXPECT_EQ(count_parameters(*model), 44401393);
  std::int64_t trainable = 0;
  for (const auto& parameter : model->parameters()) trainable += parameter.requires_grad() ? parameter.numel() : 0;
  EXPECT_EQ(trainable, 44178993);
  EXPECT_EQ(count_parameters(*mask_rcnn_resnet101_fpn()), 63341297);
  EXPECT_EQ(count_parameters(*mask_rcnn_tiny({.classes = 4})), 606679);
}

TEST(MaskRcnn, HasGradientsForAllParametersWithoutObjects) {
  for (const std::int64_t objects : {0, 3}) {
    auto model = mask_rcnn_tiny({.classes = 4});
    const auto losses = model->losses(random_batch(2), {targets_with(objects), targets_with(0)});
    losses.sum().backward();
    for (const auto& item : model->named_parameters()) {
      ASSERT_TRUE(item.value().grad().defined()) << item.key();
      EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
    }
    EXPECT_EQ(losses.masks.item<float>() > 0, objects > 0);
  }
}

TEST(MaskRcnn, IsFasterRcnnWithoutMasks) {
  auto model = mask_rcnn_tiny({.classes = 4, .masks = std::nullopt});
  auto targets = targets_with(2);
  targets.masks = at::Tensor();
  const auto losses = model->losses(random_batch(1), {targets});
  EXPECT_FALSE(losses.masks.defined());
  losses.sum().backward();
  model->eval();
  EXPECT_FALSE(model->detect(random_batch(1)).front().masks.defined());
}

TEST(MaskRcnn, ChoosesTheSameSamplesInAnyBatch) {
  auto model = mask_rcnn_tiny({.classes = 4});
  model->eval();  // statistics of batch norms that do not depend on the batch
  const auto both = random_batch(2);
  const auto sum_of = [&](std::int64_t first, std::int64_t count) {
    const ImageBatch part{.images = both.images.narrow(0, first, count),
                          .sizes = {both.sizes.begin() + first, both.sizes.begin() + first + count}};
    std::vector<ObjectTargets> targets;
    for (std::int64_t k = first; k < first + count; ++k) {
      targets.push_back(targets_with(2));
      targets.back().seed += static_cast<std::uint64_t>(k) << 40U;
    }
    // Counts of all images.
    return model->losses(part, targets, [&](const at::Tensor& counts) { return torch::full_like(counts, 1000); })
        .sum()
        .item<double>();
  };
  EXPECT_NEAR(sum_of(0, 2), sum_of(0, 1) + sum_of(1, 1), 1e-5);
}

TEST(MaskRcnn, DetectsWithinTheImages) {
  torch::manual_seed(9);
  MaskRcnnOptions options{.classes = 4};
  options.boxes.score_threshold = 0;
  auto model = mask_rcnn_tiny(options);
  model->eval();
  const at::NoGradGuard no_grad;
  const auto batch = random_batch(2);
  const auto detections = model->detect(batch);
  ASSERT_EQ(detections.size(), 2);
  for (std::size_t k = 0; k < 2; ++k) {
    const auto& each = detections[k];
    ASSERT_GT(each.labels.size(0), 0);
    EXPECT_LE(each.labels.size(0), 100);
    EXPECT_TRUE(each.boxes.ge(0).all().item<bool>());
    EXPECT_LE(each.boxes.select(1, 2).max().item<float>(), static_cast<float>(batch.sizes[k].width));
    EXPECT_LE(each.boxes.select(1, 3).max().item<float>(), static_cast<float>(batch.sizes[k].height));
    EXPECT_TRUE(each.scores.diff().le(0).all().item<bool>());
    EXPECT_TRUE(each.labels.ge(1).logical_and(each.labels.le(3)).all().item<bool>());
    EXPECT_EQ(each.masks.sizes(), at::IntArrayRef({each.labels.size(0), 28, 28}));
  }
}

TEST(MaskRcnn, RefusesTargetsThatItCannotLearn) {
  auto model = mask_rcnn_tiny({.classes = 4});
  const auto batch = random_batch(2);
  EXPECT_NE(refusal(model, batch, {targets_with(1)}).find("2 images, 2 sizes and 1 targets"), std::string::npos);
  auto wrong = targets_with(2);
  wrong.labels[1] = 4;
  EXPECT_NE(refusal(model, batch, {targets_with(1), wrong}).find("Image 1 of the batch has a label"),
            std::string::npos);
  wrong = targets_with(2);
  wrong.boxes[0][2] = 10;
  EXPECT_NE(refusal(model, batch, {wrong, wrong}).find("Image 0 of the batch has a box without"), std::string::npos);
  wrong = targets_with(2);
  wrong.boxes[0][2] = std::numeric_limits<float>::infinity();
  EXPECT_NE(refusal(model, batch, {wrong, wrong}).find("Image 0 of the batch has a box without"), std::string::npos);
  EXPECT_NE(refusal(model, {.images = at::zeros({0, 3, 64, 64})}, {}).find("given no images"), std::string::npos);
  EXPECT_TRUE(model->detect({.images = at::zeros({0, 3, 64, 64})}).empty());
  wrong = targets_with(2);
  wrong.masks = wrong.masks.slice(0, 1);
  EXPECT_NE(refusal(model, batch, {wrong, wrong}).find("needs as many masks"), std::string::npos);
}

TEST(MaskRcnn, RefusesImpossibleOptions) {
  EXPECT_THROW(MaskRcnn(MaskRcnnOptions{.classes = 1}), std::invalid_argument);
  EXPECT_THROW(MaskRcnn(MaskRcnnOptions{.trainable_stages = 6}), std::invalid_argument);
  EXPECT_THROW(MaskRcnn(MaskRcnnOptions{.layers = {1, 1}}), std::invalid_argument);
  EXPECT_THROW(MaskRcnn(MaskRcnnOptions{.anchors = {.sizes = {8}}}), std::invalid_argument);
  EXPECT_THROW(make_mask_rcnn("resnet18"), std::invalid_argument);
}

TEST(FrozenBatchNorm, ScalesTheConvolutionInstead) {
  torch::manual_seed(5);
  torch::nn::Conv2d convolution(torch::nn::Conv2dOptions(6, 8, 3).stride(2).padding(1).groups(2).bias(false));
  FrozenBatchNorm2d norm(8);
  for (const auto& buffer : norm->named_buffers()) buffer.value().uniform_(0.5, 2);
  const auto x = torch::randn({2, 6, 9, 11});
  EXPECT_TRUE(norm->after(*convolution, x).allclose(norm->forward(convolution->forward(x)), 1e-5, 1e-5));
}

TEST(PasteMasks, FillsTheBoxInTheImage) {
  const auto masks = torch::ones({2, 28, 28});
  const auto boxes = torch::tensor({{10.0F, 20.0F, 30.0F, 50.0F}, {-5.0F, -5.0F, 4.0F, 4.0F}});
  const auto pasted = paste_masks(masks, boxes, {60, 40});
  EXPECT_EQ(pasted.sizes(), at::IntArrayRef({2, 60, 40}));
  EXPECT_TRUE(pasted[0].slice(0, 22, 48).slice(1, 12, 28).gt(0.999).all().item<bool>());
  EXPECT_EQ(pasted[0].slice(0, 53).sum().item<float>(), 0);
  EXPECT_GT(pasted[1].slice(0, 0, 3).slice(1, 0, 3).min().item<float>(), 0.9F);
  EXPECT_TRUE(paste_masks(masks, boxes, {60, 40}, 0.5).equal(pasted.ge(0.5).to(torch::kByte)));
  EXPECT_EQ(paste_masks(masks.slice(0, 0, 0), boxes.slice(0, 0, 0), {60, 40}).size(0), 0);
}

}  // namespace
}  // namespace libtrain::models
