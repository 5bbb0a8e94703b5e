#include <libtrain/data/normalize_on_device.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/data_loader.hpp>
#include <libtrain/data/image/resize.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using testing::HasSubstr;

constexpr int kSide = 16;  // an image has every byte once per channel

PixelType pixel_type(at::ScalarType type) {
  if (type == at::kByte) return PixelType::uint8;
  if (type == at::kHalf) return PixelType::float16;
  return type == at::kBFloat16 ? PixelType::bfloat16 : PixelType::float32;
}

// Image i has byte (7 p + i + 91 c) % 256 in channel c of pixel p, finished by the resizer as the pipeline finishes it.
class BytesOnly : public InPlaceDataset {
 public:
  BytesOnly(std::uint64_t size, ImageShape shape) : size_(size), shape_(shape) {}
  std::uint64_t size() const override { return size_; }
  ImageShape image_shape() const override { return shape_; }
  std::int64_t read(std::uint64_t index, SampleRandom& /*random*/, void* image) const override {
    const auto channels = static_cast<int>(shape_.channels);
    Image picture{.width = kSide, .height = kSide, .channels = channels};
    for (std::uint64_t element = 0; element < static_cast<std::uint64_t>(shape_.elements()); ++element) {
      const auto [pixel, channel] = std::pair{element / picture.channels, element % picture.channels};
      picture.pixels.push_back(static_cast<std::uint8_t>(7 * pixel + index + 91 * channel));
    }
    const bool nhwc = shape_.format == at::MemoryFormat::ChannelsLast;
    Resizer().resize(view(picture), {.normalization = kImageNetNormalization},
                     {.pixels = image,
                      .width = kSide,
                      .height = kSide,
                      .channels = channels,
                      .type = pixel_type(shape_.type),
                      .layout = nhwc ? Layout::nhwc : Layout::nchw});
    return static_cast<std::int64_t>(index % 4);
  }

 private:
  std::uint64_t size_;
  ImageShape shape_;
};

ImageShape shape_of(std::int64_t channels, at::ScalarType type, at::MemoryFormat format) {
  return {.channels = channels, .height = kSide, .width = kSide, .type = type, .format = format};
}

std::vector<Batch> batches_of(const Dataset& dataset, DataLoaderOptions options) {
  options.batch_size = 3;
  options.remainder = Remainder::exact;
  DataLoader loader{dataset, options};
  std::vector<Batch> batches;
  for (auto& batch : loader.epoch(0)) batches.push_back(batch);
  return batches;
}

constexpr auto kFormats = {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast};

TEST(NormalizeOnDevice, GivesTheBitsOfThePipeline) {
  for (const std::int64_t channels : {1, 3}) {
    for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
      for (const auto from : kFormats) {
        for (const auto to : kFormats) {
          const BytesOnly bytes(7, shape_of(channels, at::kByte, from));
          const BytesOnly finished(7, shape_of(channels, type, to));
          const auto expected = batches_of(finished, {});
          const auto actual =
              batches_of(bytes, {.normalize_on_device = DeviceNormalization{.type = type, .format = to}});
          ASSERT_EQ(actual.size(), 3u);
          for (std::size_t b = 0; b < actual.size(); ++b) {
            EXPECT_EQ(actual[b].images.scalar_type(), type);
            EXPECT_TRUE(actual[b].images.is_contiguous(to));
            EXPECT_TRUE(actual[b].images.equal(expected[b].images)) << type << " of " << channels << " channels";
            EXPECT_TRUE(actual[b].labels.equal(expected[b].labels));
          }
        }
      }
    }
  }
}

TEST(NormalizeOnDevice, TakesOtherMeansAndABatchWithoutImages) {
  const NormalizeOnDevice normalize({.normalization = {.mean = {0.5f, 0, 0.25f}, .standard_deviation = {0.5f, 1, 2}}},
                                    c10::kCPU);
  const auto images = at::full({1, 3, 2, 2}, 255, at::kByte);
  const auto normalized = normalize(images);
  EXPECT_FLOAT_EQ((normalized[0][0][1][1].item<float>()), 1.f);
  EXPECT_FLOAT_EQ((normalized[0][1][1][1].item<float>()), 1.f);
  EXPECT_FLOAT_EQ((normalized[0][2][1][1].item<float>()), 0.375f);
  EXPECT_EQ(normalize(at::empty({0, 3, 2, 2}, at::kByte)).sizes(), (at::IntArrayRef{0, 3, 2, 2}));
}

// The same numbers are drawn as for images that the host has normalised.
TEST(NormalizeOnDevice, IsFollowedByMixing) {
  const BatchMixing mixup{.classes = 4, .mixup_alpha = 0.4};
  const BatchMixing cutmix{.classes = 4, .cutmix_alpha = 1};
  for (const auto& mixing : {mixup, cutmix}) {
    for (const auto format : kFormats) {
      const BytesOnly bytes(8, shape_of(3, at::kByte, format));
      const BytesOnly finished(8, shape_of(3, at::kFloat, format));
      const auto expected = batches_of(finished, {.mixing = mixing});
      for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
        const auto actual = batches_of(
            bytes, {.mixing = mixing, .normalize_on_device = DeviceNormalization{.type = type, .format = format}});
        for (std::size_t b = 0; b < actual.size(); ++b) {
          EXPECT_TRUE(actual[b].images.is_contiguous(format));
          EXPECT_TRUE(actual[b].labels.equal(expected[b].labels));
          const auto images = actual[b].images.to(at::kFloat);
          if (type == at::kFloat) {
            EXPECT_TRUE(images.equal(expected[b].images));
          } else if (mixing.cutmix_alpha > 0) {
            EXPECT_TRUE(images.equal(expected[b].images.to(type).to(at::kFloat)));
          } else {
            EXPECT_TRUE(at::allclose(images, expected[b].images, 0, type == at::kHalf ? 4e-3 : 3e-2));
          }
        }
      }
    }
  }
}

TEST(NormalizeOnDevice, RefusesOtherOptionsAndImages) {
  const auto refusal = [](const DeviceNormalization& options) {
    return message_of<UsageError>([&] { NormalizeOnDevice(options, c10::kCPU); });
  };
  EXPECT_THAT(refusal({.type = at::kByte}), HasSubstr("DeviceNormalization::type is Byte"));
  EXPECT_THAT(refusal({.format = at::MemoryFormat::Preserve}), HasSubstr("DeviceNormalization::format is Preserve"));
  EXPECT_THAT(refusal({.normalization = {.standard_deviation = {1, 0, 1}}}), HasSubstr("Channel 1 is normalised with"));
  const NormalizeOnDevice normalize({}, c10::kCPU);
  for (const auto& images :
       {at::Tensor(), at::zeros({1, 3, 2, 2}), at::zeros({3, 2, 2}, at::kByte), at::zeros({1, 2, 2, 2}, at::kByte)}) {
    EXPECT_THAT(message_of<UsageError>([&] { normalize(images); }),
                HasSubstr("must be uint8 [B, 1 or 3, H, W] on cpu"));
  }
}

TEST(NormalizeOnDevice, RefusesADataSetThatHasNoBytes) {
  const DataLoaderOptions options{.normalize_on_device = DeviceNormalization{}};
  const BytesOnly floats(3, shape_of(3, at::kFloat, at::MemoryFormat::Contiguous));
  EXPECT_THAT(message_of<UsageError>([&] { DataLoader(floats, options); }),
              HasSubstr("normalize_on_device needs uint8 images"));
  // One whose shape is known from its first sample.
  class Tensors : public Dataset {
   public:
    std::uint64_t size() const override { return 3; }
    Sample get(std::uint64_t /*index*/, SampleRandom& /*random*/) const override { return {at::zeros({3, 2, 2}), 0}; }
  };
  const Tensors tensors;
  DataLoader loader{tensors, options};
  EXPECT_THAT(message_of<UsageError>([&] { loader.epoch(0).next(); }),
              HasSubstr("but those of the data set are Float"));
}

}  // namespace
}  // namespace libtrain::data
