#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include <libtrain/data/batch.hpp>
#include <libtrain/data/dataset.hpp>
#include <libtrain/data/loader/batch_mixing.hpp>
#include <libtrain/data/loader/typed_batches.hpp>
#include <libtrain/data/normalize_on_device.hpp>

namespace libtrain::data {

/// Changes a sample after it was read, with random numbers that belong to that sample and epoch. Called from several
/// threads at once.
using Transform = std::function<void(Sample&, SampleRandom&)>;

namespace detail {

/// Throws UsageError for images that NormalizeOnDevice does not take.
void require_bytes(const ImageShape& shape);

/// Memory for batches on the host, reused once nothing refers to its batch: new memory costs a page fault every 4 KiB.
/// Any thread may call it.
class BatchMemory {
 public:
  /// `pinned`: memory that a GPU can copy from asynchronously. It comes from LibTorch's pinned allocator, which decides
  /// when it may be reused, and is not kept here.
  ///
  /// `limit`: how many batches are remembered. If the program keeps more, the memory of the oldest is not reused.
  BatchMemory(bool pinned, std::size_t limit) : pinned_(pinned), limit_(limit) {}

  /// A batch of uninitialised samples. Its memory may have been allocated for more samples: the last batch of an epoch
  /// is often smaller than the others.
  Batch take(const ImageShape& shape, std::int64_t samples);

  /// Of tensors in such memory.
  at::TensorOptions options(at::ScalarType type) const { return at::TensorOptions(type).pinned_memory(pinned_); }

 private:
  const bool pinned_;
  const std::size_t limit_;
  std::mutex mutex_;
  std::vector<Batch> batches_;  // oldest first
};

/// The state of an image loader that its epochs share.
struct ImageLoaderState {
  const Dataset& dataset;
  const InPlaceDataset* in_place = nullptr;  ///< `dataset`, if it is one
  Transform transform = {};
  std::int64_t classes = 0;  ///< labels must be below it; 0: any
  std::optional<BatchMixing> mixing = {};
  std::optional<NormalizeOnDevice> normalize = {};
  BatchMemory memory;
  std::mutex mutex = {};
  std::optional<ImageShape> shape = {};  ///< of all images, once it is known; guarded by the mutex
};

/// Makes batches of images: each sample is read and transformed directly in the memory of the batch.
class ImageBatches final : public BatchMakerOf<Batch> {
 public:
  /// The arguments must outlive it.
  ImageBatches(ImageLoaderState& images, const LoaderCore& loader, std::uint64_t epoch);

  /// Reads the first image if the shape of the images is not known yet. Throws as fill().
  void open(std::size_t slot, std::span<const std::uint64_t> indices) override;

  /// Throws UsageError for an image that is not [C, H, W] on the CPU or differs from the others in shape or type, and
  /// for a label that is not below `classes`; EnvironmentError for too many bad samples; and what the data set or the
  /// transform throws.
  void fill(std::size_t slot, std::uint64_t place, std::uint64_t index) override;

 private:
  struct Slot {
    ImageShape shape = {};
    std::byte* images = nullptr;  // of the batch, so that workers need not touch its tensors
    std::int64_t* labels = nullptr;
    std::optional<DrawnMixing> mixing = {};  // to be done on the device, once the images are normalised
  };

  Batch finish(std::size_t slot, SampleRandom& random) override;
  void complete(std::size_t slot, Batch& batch) override;
  ImageShape shape(std::uint64_t index);
  Sample get(std::uint64_t index, SampleRandom& random) const;
  std::int64_t read_and_store(std::uint64_t index, SampleRandom& random, const ImageShape& shape, void* image) const;
  std::int64_t read_in_place(std::uint64_t index, SampleRandom& random, const ImageShape& shape, void* image) const;

  ImageLoaderState& images_;
  std::vector<Slot> slots_;
  std::vector<Batch> batches_;
};

}  // namespace detail

}  // namespace libtrain::data
