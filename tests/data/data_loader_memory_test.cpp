#include <cstdint>
#include <set>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/data_loader.hpp>

namespace libtrain::data {
namespace {

// Image i is full of i.
class Written : public InPlaceDataset {
 public:
  Written(std::uint64_t size, ImageShape shape) : size_(size), shape_(shape) {}
  std::uint64_t size() const override { return size_; }
  ImageShape image_shape() const override { return shape_; }
  std::int64_t read(std::uint64_t index, SampleRandom&, void* image) const override {
    at::from_blob(image, {shape_.elements()}, at::TensorOptions(shape_.type)).fill_(static_cast<double>(index));
    return static_cast<std::int64_t>(index);
  }

 private:
  std::uint64_t size_;
  ImageShape shape_;
};

const ImageShape kSmall{.channels = 2, .height = 3, .width = 5};

TEST(BatchMemory, IsUsedAgainOnceABatchIsGone) {
  const Written images(64, kSmall);
  DataLoader loader{images, {.batch_size = 4, .workers = 1, .order = Order::sequential, .prefetch = 2}};
  std::set<const void*> places;
  for (auto& batch : loader.epoch(0)) places.insert(batch.images.const_data_ptr());
  for (auto& batch : loader.epoch(1)) places.insert(batch.images.const_data_ptr());
  EXPECT_LE(places.size(), 4u);  // 2 that are made, 1 that the loop has, 1 on its way
}

TEST(BatchMemory, IsNotUsedAgainWhileAnythingRefersToIt) {
  const Written images(40, kSmall);
  DataLoader loader{images, {.batch_size = 4, .workers = 2, .order = Order::sequential, .prefetch = 2}};
  std::vector<Batch> batches;
  std::vector<at::Tensor> views;
  for (auto& batch : loader.epoch(0)) {
    if (batches.size() < 5) {
      batches.push_back(batch);
    } else {
      views.push_back(batch.images.select(0, 1));
    }
  }
  for (std::size_t b = 0; b < 5; ++b) {
    for (std::int64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(batches[b].images[i].max().item<float>(), static_cast<float>(4 * b) + static_cast<float>(i));
      EXPECT_EQ(batches[b].labels[i].item<std::int64_t>(), static_cast<std::int64_t>(4 * b) + i);
    }
  }
  ASSERT_EQ(views.size(), 5u);
  for (std::size_t v = 0; v < 5; ++v) EXPECT_EQ(views[v].max().item<float>(), static_cast<float>(4 * (v + 5) + 1));
}

TEST(BatchMemory, WhatIsDoneToABatchDoesNotComeBack) {
  const Written images(12, kSmall);
  DataLoader loader{images, {.batch_size = 4, .workers = 0, .order = Order::sequential, .prefetch = 1}};
  for (auto& batch : loader.epoch(0)) {
    EXPECT_FALSE(batch.images.requires_grad());
    EXPECT_EQ(batch.images.sizes(), (at::IntArrayRef{4, 2, 3, 5}));
    EXPECT_EQ(batch.size(), 4);
    batch.images.requires_grad_();
    batch.labels.resize_({2});
  }
}

TEST(BatchMemory, IsNotUsedForAnotherFormatOrType) {
  detail::BatchMemory memory(/*pinned=*/false, 4);
  ImageShape shape{.channels = 2, .height = 3, .width = 5};
  for (const auto type : {at::kFloat, at::kHalf}) {
    for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      shape.type = type;
      shape.format = format;
      const Batch batch = memory.take(shape, 4);
      EXPECT_EQ(batch.images.scalar_type(), type);
      EXPECT_TRUE(batch.images.is_contiguous(format));
    }
  }
}

TEST(BatchMemory, ALastBatchThatIsSmallerFits) {
  const Written images(10, kSmall);
  DataLoader loader{images, {.batch_size = 4, .workers = 1, .order = Order::sequential}};
  for (const std::uint64_t epoch : {0, 1}) {
    std::vector<std::int64_t> labels;
    for (auto& batch : loader.epoch(epoch)) {
      EXPECT_TRUE(batch.images.is_contiguous());
      for (std::int64_t i = 0; i < batch.size(); ++i) {
        labels.push_back(batch.labels[i].item<std::int64_t>());
        EXPECT_EQ(batch.images[i].min().item<float>(), static_cast<float>(labels.back()));
      }
    }
    EXPECT_THAT(labels, testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  }
}

TEST(BatchMemory, ABatchThatIsLargerThanThoseBeforeFits) {
  const Written images(10, kSmall);
  DataLoader loader{images, {.batch_size = 4, .workers = 1, .order = Order::sequential}};
  for (auto& batch : loader.epoch(0, 2)) EXPECT_EQ(batch.size(), 2);
  std::vector<std::int64_t> sizes;
  for (auto& batch : loader.epoch(1)) sizes.push_back(batch.images.size(0));
  EXPECT_THAT(sizes, testing::ElementsAre(4, 4, 2));
}

TEST(LoaderStatisticsOfALoader, SumUpAllEpochsAndTheOneThatRuns) {
  const Written images(40, kSmall);
  DataLoader loader{images, {.batch_size = 4, .workers = 1, .prefetch = 2}};
  {
    auto epoch = loader.epoch(0);
    ASSERT_TRUE(epoch.next());
    ASSERT_TRUE(epoch.next());
    EXPECT_EQ(loader.statistics().batches, 2u);
    EXPECT_EQ(loader.statistics().samples, 8u);
  }
  EXPECT_EQ(loader.statistics().batches, 2u);
  auto epoch = loader.epoch(1);
  ASSERT_TRUE(epoch.next());
  EXPECT_EQ(loader.statistics().batches, 3u);
  EXPECT_EQ(loader.statistics().batch_slots, 2u);
}

TEST(InPlaceDataset, WritesAllTypesAndFormats) {
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16, at::kByte}) {
    for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      const Written images(7, {.channels = 3, .height = 4, .width = 5, .type = type, .format = format});
      EXPECT_EQ(images.sample(2).image.sizes(), (at::IntArrayRef{3, 4, 5}));
      EXPECT_EQ(images.sample(2).image.max().item<double>(), 2);
      DataLoader loader{images, {.batch_size = 7, .workers = 2, .order = Order::sequential}};
      for (auto& batch : loader.epoch(0)) {
        EXPECT_EQ(batch.images.scalar_type(), type);
        EXPECT_EQ(batch.images.sizes(), (at::IntArrayRef{7, 3, 4, 5}));
        EXPECT_TRUE(batch.images.is_contiguous(format));
        for (int i = 0; i < 7; ++i) {
          EXPECT_EQ(batch.images[i].min().item<double>(), i);
          EXPECT_EQ(batch.images[i].max().item<double>(), i);
        }
      }
    }
  }
}

TEST(InPlaceDataset, TransformsSeeAndChangeTheImageInItsPlace) {
  const auto transforms = std::vector<std::pair<const char*, Transform>>{
      {"in place", [](Sample& sample, SampleRandom&) { sample.image.mul_(2).add_(1); }},
      {"another tensor", [](Sample& sample, SampleRandom&) { sample.image = sample.image * 2 + 1; }},
      {"a view of itself",
       [](Sample& sample, SampleRandom&) { sample.image = sample.image.mul_(2).add_(1).flip({2}).flip({2}); }}};
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    const Written images(5, {.channels = 3, .height = 2, .width = 4, .format = format});
    for (const auto& [name, transform] : transforms) {
      DataLoader loader{images, {.batch_size = 5, .order = Order::sequential, .transform = transform}};
      for (auto& batch : loader.epoch(0)) {
        for (int i = 0; i < 5; ++i) {
          EXPECT_EQ(batch.images[i].min().item<double>(), 2 * i + 1) << name;
          EXPECT_EQ(batch.images[i].max().item<double>(), 2 * i + 1) << name;
        }
      }
    }
  }
}

TEST(InPlaceDataset, ATransposedViewIsStoredAsItLooks) {
  const Written images(1, {.channels = 1, .height = 3, .width = 3});
  const auto transpose = [](Sample& sample, SampleRandom&) {
    sample.image.copy_(at::arange(9, at::kFloat).view({1, 3, 3}));
    sample.image = sample.image.transpose(1, 2);
  };
  DataLoader loader{images, {.batch_size = 1, .transform = transpose}};
  for (auto& batch : loader.epoch(0)) {
    EXPECT_TRUE(batch.images[0].equal(at::arange(9, at::kFloat).view({1, 3, 3}).transpose(1, 2)));
  }
}

TEST(InPlaceDataset, WhatATransformDoesToTheTensorItselfCounts) {
  const Written images(1, {.channels = 1, .height = 3, .width = 3});
  const auto expected = at::arange(9, at::kFloat).view({1, 3, 3});
  const auto turn = [&](Sample& sample, SampleRandom&) {
    sample.image.copy_(expected);
    sample.image.transpose_(1, 2);
  };
  const auto replace = [&](Sample& sample, SampleRandom&) { sample.image.set_data(expected * 2); };
  DataLoader turning{images, {.batch_size = 1, .transform = turn}};
  for (auto& batch : turning.epoch(0)) EXPECT_TRUE(batch.images[0].equal(expected.transpose(1, 2)));
  DataLoader replacing{images, {.batch_size = 1, .transform = replace}};
  for (auto& batch : replacing.epoch(0)) EXPECT_TRUE(batch.images[0].equal(expected * 2));
}

TEST(InPlaceDataset, ATransformMustKeepTheShapeAndTheType) {
  const Written images(4, kSmall);
  const auto cut = [](Sample& sample, SampleRandom&) { sample.image = sample.image.slice(2, 0, 2); };
  const auto halve = [](Sample& sample, SampleRandom&) { sample.image = sample.image.to(at::kHalf); };
  for (const Transform& transform : {Transform(cut), Transform(halve)}) {
    DataLoader loader{images, {.batch_size = 2, .transform = transform}};
    EXPECT_THROW(loader.epoch(0).next(), UsageError);
  }
}

TEST(BatchMixing, MixesAWholeBatchAndItsLabels) {
  const Written images(4, kSmall);
  DataLoader loader{images,
                    {.batch_size = 4,
                     .workers = 2,
                     .order = Order::sequential,
                     .mixing = BatchMixing{.classes = 6, .mixup_alpha = 0.4}}};
  for (auto& batch : loader.epoch(3)) {
    ASSERT_EQ(batch.labels.sizes(), (at::IntArrayRef{4, 6}));
    for (int i = 0; i < 4; ++i) {
      const int before = (i + 3) % 4;
      const double own = batch.labels[i][i].item<double>();
      EXPECT_NEAR(batch.labels[i][before].item<double>(), 1 - own, 1e-6);
      EXPECT_NEAR(batch.labels[i].sum().item<double>(), 1, 1e-6);
      EXPECT_NEAR(batch.images[i].max().item<double>(), own * i + (1 - own) * before, 1e-5);
      EXPECT_EQ(batch.images[i].max().item<double>(), batch.images[i].min().item<double>());
    }
  }
}

TEST(BatchMixing, CutsRectanglesAndSharesLabelsByArea) {
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    const Written images(4, {.channels = 3, .height = 8, .width = 8, .format = format});
    DataLoader loader{
        images, {.batch_size = 4, .order = Order::sequential, .mixing = BatchMixing{.classes = 4, .cutmix_alpha = 1}}};
    for (const std::uint64_t epoch : {0, 1, 2, 3, 4}) {
      for (auto& batch : loader.epoch(epoch)) {
        for (int i = 0; i < 4; ++i) {
          const at::Tensor kept = batch.images[i] == i;
          const auto own = kept.sum().item<std::int64_t>();
          const auto other = (batch.images[i] == (i + 3) % 4).sum().item<std::int64_t>();
          EXPECT_EQ(own + other, 3 * 64);
          EXPECT_TRUE(kept.equal(kept[0].expand_as(kept)));  // the same rectangle of every channel
          EXPECT_NEAR(batch.labels[i][i].item<double>(), static_cast<double>(own) / (3 * 64), 1e-6);
        }
      }
    }
  }
}

// The weight of the first sample of each batch in itself.
std::vector<float> shares_kept(std::uint64_t seed, std::uint64_t epoch, int workers) {
  const Written images(12, kSmall);
  DataLoader loader{images,
                    {.batch_size = 4,
                     .workers = workers,
                     .seed = seed,
                     .order = Order::sequential,
                     .mixing = BatchMixing{.classes = 12, .mixup_alpha = 1}}};
  std::vector<float> shares;
  for (auto& batch : loader.epoch(epoch)) {
    const auto first = static_cast<std::int64_t>(4 * shares.size());
    shares.push_back(batch.labels[0][first].item<float>());
  }
  return shares;
}

TEST(BatchMixing, DrawsAnewForEveryBatchEpochAndSeed) {
  const std::vector<float> expected = shares_kept(1, 2, 2);
  EXPECT_EQ(shares_kept(1, 2, 0), expected);
  std::set<float> different(expected.begin(), expected.end());
  for (const float share : shares_kept(1, 3, 2)) different.insert(share);
  for (const float share : shares_kept(2, 2, 2)) different.insert(share);
  EXPECT_EQ(different.size(), 9u);
}

// From images full of 0 and full of 1, CutMix makes whole numbers only, and mixup none.
TEST(BatchMixing, TakesEitherKindEquallyOftenWhereBothAreAskedFor) {
  const Written images(2, {.channels = 1, .height = 8, .width = 8});
  DataLoader loader{images,
                    {.batch_size = 2,
                     .workers = 0,
                     .order = Order::sequential,
                     .mixing = BatchMixing{.classes = 2, .mixup_alpha = 1, .cutmix_alpha = 1}}};
  int cut = 0;
  for (std::uint64_t epoch = 0; epoch < 400; ++epoch) {
    for (auto& batch : loader.epoch(epoch)) cut += batch.images.equal(batch.images.round()) ? 1 : 0;
  }
  EXPECT_NEAR(cut, 200, 50);  // 5 standard deviations
}

TEST(BatchMixing, RefusesWhatItCannotMix) {
  const Written images(4, kSmall);
  EXPECT_THROW(DataLoader(images, {.mixing = BatchMixing{.classes = 4}}), UsageError);
  EXPECT_THROW(DataLoader(images, {.mixing = BatchMixing{.mixup_alpha = 1}}), UsageError);
  EXPECT_THROW(DataLoader(images, {.mixing = BatchMixing{.classes = 4, .mixup_alpha = -1}}), UsageError);
  DataLoader too_few{images, {.batch_size = 4, .mixing = BatchMixing{.classes = 2, .mixup_alpha = 1}}};
  EXPECT_THROW(too_few.epoch(0).next(), UsageError);
  const Written bytes(4, {.channels = 1, .height = 2, .width = 2, .type = at::kByte});
  DataLoader not_floating{bytes, {.batch_size = 4, .mixing = BatchMixing{.classes = 4, .mixup_alpha = 1}}};
  EXPECT_THROW(not_floating.epoch(0).next(), UsageError);
}

}  // namespace
}  // namespace libtrain::data
