// Batches on a real GPU equal those on the host, also if the stream that reads them is far behind the loader.
// data_loader_on_device_test.cpp tests the order of streams in detail, on a fake GPU.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include <libtrain/data/data_loader.hpp>
#include <libtrain/data/normalize_on_device.hpp>

#include <tests/support/on_ranks.hpp>

namespace libtrain::data {
namespace {

constexpr std::uint64_t kSamples = 40;

// Image i has byte (7 i + p) % 256 at position p.
class Ramps : public InPlaceDataset {
 public:
  std::uint64_t size() const override { return kSamples; }
  ImageShape image_shape() const override { return {.height = 64, .width = 64, .type = at::kByte}; }
  std::int64_t read(std::uint64_t index, SampleRandom& /*random*/, void* image) const override {
    auto* const bytes = static_cast<std::uint8_t*>(image);
    for (std::int64_t p = 0; p < image_shape().elements(); ++p)
      bytes[p] = static_cast<std::uint8_t>((7 * index + static_cast<std::uint64_t>(p)) % 256);
    return static_cast<std::int64_t>(index % 5);
  }
};

// Work that is queued to the current stream after this waits for this time.
void occupy_stream() {
  C10_CUDA_CHECK(cudaLaunchHostFunc(
      c10::cuda::getCurrentCUDAStream(), [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(300)); },
      nullptr));
}

std::vector<Batch> copies(DataLoader& loader) {
  std::vector<Batch> copied;
  for (auto& batch : loader.epoch(0)) copied.push_back({batch.images.clone(), batch.labels.clone()});
  return copied;
}

class DataLoaderGpu : public ::testing::TestWithParam<std::optional<at::ScalarType>> {};

TEST_P(DataLoaderGpu, GivesTheHostsBatchesToAStreamThatIsBehind) {
  DataLoaderOptions options{.batch_size = 4, .workers = 2, .prefetch = 2};
  if (const auto type = GetParam())
    options.normalize_on_device = DeviceNormalization{.type = *type, .format = at::MemoryFormat::ChannelsLast};
  const Ramps ramps;
  DataLoader on_host{ramps, options};
  DataLoader on_gpu{ramps, options, RankShard{Shard{}, test::device(), {}}};
  const auto expected = copies(on_host);
  occupy_stream();
  const auto actual = copies(on_gpu);
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t b = 0; b < actual.size(); ++b) {
    EXPECT_TRUE(actual[b].images.is_cuda());
    // A GPU may contract the multiplication and the addition of the normalisation.
    EXPECT_TRUE(actual[b].images.cpu().to(at::kFloat).allclose(expected[b].images.to(at::kFloat), 1e-2, 1e-2));
    EXPECT_TRUE(actual[b].labels.cpu().equal(expected[b].labels));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, DataLoaderGpu,
                         ::testing::Values(std::nullopt, std::optional(at::kFloat), std::optional(at::kBFloat16)));

}  // namespace
}  // namespace libtrain::data
