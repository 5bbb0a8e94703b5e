#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <libtrain/data/data_loader.hpp>
#include <libtrain/data/loader/device_copy.hpp>
#include <libtrain/data/normalize_on_device.hpp>

#include <tests/support/fake_gpu/fake_gpu.hpp>
#include <tests/support/fresh_seed.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::BlockedStream;
using libtrain::test::fake_gpu;
using libtrain::test::fake_gpu_counts;
using libtrain::test::FakeGpuDelays;
using libtrain::test::FreshSeed;
using libtrain::test::NoHostSynchronization;

// Of three channels; large enough that a batch is not copied before anybody looks.
constexpr std::int64_t kSide = 24;

// Image i is full of byte 7 i, or of that number.
class Numbers : public InPlaceDataset {
 public:
  Numbers(std::uint64_t size, at::ScalarType type) : size_(size), type_(type) {}
  std::uint64_t size() const override { return size_; }
  ImageShape image_shape() const override { return {.height = kSide, .width = kSide, .type = type_}; }
  std::int64_t read(std::uint64_t index, SampleRandom& /*random*/, void* image) const override {
    const auto value = static_cast<std::int64_t>(7 * index % 256);
    at::from_blob(image, {image_shape().elements()}, at::TensorOptions(type_)).fill_(value);
    return static_cast<std::int64_t>(index % 5);
  }

 private:
  std::uint64_t size_;
  at::ScalarType type_;
};

RankShard shard_on(c10::Device device) {
  return {Shard{}, device, {}};
}

c10::Stream current_stream() {
  return c10::impl::VirtualGuardImpl(fake_gpu().type()).getStream(fake_gpu());
}

c10::Stream new_stream() {
  return c10::impl::VirtualGuardImpl(fake_gpu().type()).getStreamFromGlobalPool(fake_gpu());
}

at::Tensor pinned(const at::Tensor& tensor) {
  return tensor.pin_memory();
}

// What the current stream finds in the batches of an epoch, on the device; each batch is dropped before the next.
std::vector<Batch> seen_batches(DataLoader& loader, std::uint64_t epoch) {
  std::vector<Batch> seen;
  for (auto& batch : loader.epoch(epoch)) seen.push_back({batch.images.clone(), batch.labels.clone()});
  return seen;
}

void expect_equal(const std::vector<Batch>& actual, const std::vector<Batch>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t b = 0; b < actual.size(); ++b) {
    EXPECT_TRUE(actual[b].images.is_privateuseone());
    EXPECT_TRUE(actual[b].images.cpu().equal(expected[b].images)) << "batch " << b;
    EXPECT_TRUE(actual[b].labels.cpu().equal(expected[b].labels)) << "batch " << b;
  }
}

// Whether the event comes to pass; on a stream that is blocked for good it does not.
bool happens(const c10::Event& event) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!event.query()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

constexpr std::uint64_t kSamples = 40;

DataLoaderOptions options_of(std::optional<DeviceNormalization> normalize, bool mixed = false) {
  return {.batch_size = 4,
          .workers = 2,
          .prefetch = 2,
          .mixing = mixed ? std::optional(BatchMixing{.classes = 5, .cutmix_alpha = 1}) : std::nullopt,
          .normalize_on_device = normalize};
}

TEST(DataLoaderOnDevice, GivesTheHostsBatchesWhateverTheDelays) {
  const Numbers floats(kSamples, at::kFloat);
  const Numbers bytes(kSamples, at::kByte);
  const FreshSeed seed;
  const DeviceNormalization half{.type = at::kHalf, .format = at::MemoryFormat::ChannelsLast};
  struct Case {
    const Dataset& dataset;
    DataLoaderOptions options;
  };
  const Case cases[] = {{floats, options_of({})},
                        {floats, options_of({}, true)},
                        {bytes, options_of(DeviceNormalization{})},
                        {bytes, options_of(half)},
                        {bytes, options_of(half, true)}};
  for (const auto& [dataset, options] : cases) {
    DataLoader on_host{dataset, options};
    DataLoader on_device{dataset, options, shard_on(fake_gpu())};
    const FakeGpuDelays delays(seed.value);
    for (const std::uint64_t epoch : {0, 1, 2})
      expect_equal(seen_batches(on_device, epoch), seen_batches(on_host, epoch));
  }
}

// The stream that reads the batches is behind by a whole epoch.
TEST(DataLoaderOnDevice, KeepsABatchUntilItsReaderIsDone) {
  for (const auto& normalize : {std::optional<DeviceNormalization>{}, std::optional(DeviceNormalization{})}) {
    const Numbers numbers(kSamples, normalize ? at::kByte : at::kFloat);
    DataLoader on_host{numbers, options_of(normalize)};
    DataLoader on_device{numbers, options_of(normalize), shard_on(fake_gpu())};
    std::vector<Batch> seen;
    {
      const BlockedStream blocked(current_stream());
      seen = seen_batches(on_device, 0);
    }
    expect_equal(seen, seen_batches(on_host, 0));
  }
}

TEST(DataLoaderOnDevice, NeverWaitsForTheDevice) {
  const Numbers bytes(kSamples, at::kByte);
  DataLoader loader{bytes, options_of(DeviceNormalization{.type = at::kBFloat16}), shard_on(fake_gpu())};
  const auto before = fake_gpu_counts();
  std::size_t batches = 0;
  {
    const NoHostSynchronization asserted;
    for ([[maybe_unused]] auto& batch : loader.epoch(0)) ++batches;
  }
  const auto counts = fake_gpu_counts() - before;
  EXPECT_EQ(counts.host_synchronizations, 0u);
  // Images and labels are copied, and images normalised by two operations.
  EXPECT_EQ(counts.device_operations, 4 * batches);
}

TEST(DataLoaderOnDevice, LeavesAnEpochWhileCopiesAreQueued) {
  const Numbers bytes(kSamples, at::kByte);
  const FreshSeed seed;
  at::Tensor kept;
  {
    DataLoader loader{bytes, options_of(DeviceNormalization{}), shard_on(fake_gpu())};
    const FakeGpuDelays delays(seed.value);
    for (auto& batch : loader.epoch(0)) {
      kept = batch.images;
      break;
    }
  }
  DataLoader on_host{bytes, options_of(DeviceNormalization{})};
  EXPECT_TRUE(kept.cpu().equal(seen_batches(on_host, 0).front().images));
}

TEST(DataLoaderOnDevice, MixesLabelsInPinnedMemory) {
  fake_gpu();
  const detail::BatchMemory memory(/*pinned=*/true, 1);
  const auto targets = detail::mix_labels({.lambda = 0.25}, at::arange(3, at::kLong), 4, memory.options(at::kFloat));
  EXPECT_TRUE(targets.is_pinned());
  EXPECT_EQ((targets[1][0].item<float>()), 0.75f);
}

// A copy of `host` that waits in the copy's own stream.
class DeviceCopyTest : public testing::Test {
 protected:
  DeviceCopyTest() {
    at::Tensor nothing;
    copy_.start({&nothing}, [&] { stream_ = current_stream(); });
  }

  std::unique_ptr<c10::Event> start(at::Tensor& tensor) {
    return copy_.start({&tensor}, [&] { tensor.add_(1); });
  }

  detail::DeviceCopy copy_{fake_gpu()};
  std::optional<c10::Stream> stream_;
};

TEST_F(DeviceCopyTest, MakesTheStreamWaitForTheCopyAndWhatCompletesIt) {
  auto tensor = pinned(at::full({1000}, 1.0));
  at::Tensor seen;
  {
    const BlockedStream blocked(*stream_);
    auto done = start(tensor);
    const NoHostSynchronization asserted;
    copy_.finish(std::move(done), {&tensor});
    seen = tensor.clone();
    EXPECT_FALSE(current_stream().query());
  }
  EXPECT_TRUE(seen.cpu().equal(at::full({1000}, 2.0)));
}

TEST_F(DeviceCopyTest, RunsWhileTheReadersStreamIsBusy) {
  auto tensor = pinned(at::full({1000}, 1.0));
  const BlockedStream blocked(current_stream());
  EXPECT_NE(*stream_, current_stream());
  EXPECT_TRUE(happens(*start(tensor)));
}

TEST_F(DeviceCopyTest, LeavesHostMemoryThatIsNotPinnedAtOnce) {
  auto tensor = at::full({1000}, 1.0);
  const auto host = tensor;
  {
    const BlockedStream blocked(*stream_);
    copy_.finish(start(tensor), {&tensor});
    host.fill_(5);
  }
  EXPECT_TRUE(tensor.cpu().equal(at::full({1000}, 2.0)));
}

TEST_F(DeviceCopyTest, KeepsPinnedMemoryUntilItHasRun) {
  auto tensor = pinned(at::full({1000}, 1.0));
  {
    const BlockedStream blocked(*stream_);
    copy_.finish(start(tensor), {&tensor});
    const auto next = pinned(at::full({1000}, 5.0));
  }
  EXPECT_TRUE(tensor.cpu().equal(at::full({1000}, 2.0)));
}

TEST_F(DeviceCopyTest, KeepsATensorUntilItsReaderIsDone) {
  auto tensor = pinned(at::full({1000}, 1.0));
  copy_.finish(start(tensor), {&tensor});
  at::Tensor seen;
  {
    const BlockedStream blocked(current_stream());
    seen = tensor.clone();
    auto next = pinned(at::full({1000}, 5.0));
    tensor.reset();
    EXPECT_TRUE(happens(*start(next)));
  }
  EXPECT_TRUE(seen.cpu().equal(at::full({1000}, 2.0)));
}

TEST(NormalizeOnFakeGpu, KeepsItsConstantsUntilAllStreamsAreDone) {
  const auto bytes = at::randint(256, {2, 3, 8, 8}, at::kByte);
  const auto expected = NormalizeOnDevice({}, c10::kCPU)(bytes);
  const auto images = bytes.to(fake_gpu());
  const auto stream = new_stream();
  at::Tensor normalized;
  {
    const BlockedStream blocked(stream);
    const NormalizeOnDevice normalize({}, fake_gpu());
    const c10::StreamGuard guard(stream);
    const NoHostSynchronization asserted;
    normalized = normalize(images);
  }
  stream.synchronize();
  EXPECT_TRUE(normalized.cpu().equal(expected));
}

}  // namespace
}  // namespace libtrain::data
