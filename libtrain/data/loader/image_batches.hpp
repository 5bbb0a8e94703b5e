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

namespace libtrain::data {

/// Changes a sample after it was read, drawing from random numbers that belong to that sample and epoch. Called from
/// several threads at once.
using Transform = std::function<void(Sample&, SampleRandom&)>;

namespace detail {

/// Memory for batches on the host, used again once nobody refers to a batch that had it: new memory costs a page fault
/// every 4 KiB. Any thread may call it.
class BatchMemory {
 public:
  /// `pinned`: memory that a GPU copies from while the host goes on; it comes from LibTorch's allocator of such memory,
  /// which knows when it may be used again, and is not kept here.
  ///
  /// `limit`: how many batches are kept in mind; who keeps more than that keeps their memory for good.
  BatchMemory(bool pinned, std::size_t limit) : pinned_(pinned), limit_(limit) {}

  /// A batch of so many samples with any content, in memory that was made for at least as many: the last batch of an
  /// epoch is often smaller than the others.
  Batch take(const ImageShape& shape, std::int64_t samples);

 private:
  const bool pinned_;
  const std::size_t limit_;
  std::mutex mutex_;
  std::vector<Batch> batches_;  // the oldest first
};

/// What the epochs of a loader of images have in common.
struct ImagesOfLoader {
  const Dataset& dataset;
  const InPlaceDataset* in_place = nullptr;  ///< the same, where it is one
  Transform transform = {};
  std::int64_t classes = 0;  ///< labels must be below it; 0: any
  std::optional<BatchMixing> mixing = {};
  BatchMemory memory;
  std::mutex mutex = {};
  std::optional<ImageShape> shape = {};  ///< of all images, once it is known; under the mutex
};

/// Makes batches of images: each sample is read and transformed straight into its place.
class ImageBatches final : public BatchMakerOf<Batch> {
 public:
  /// Both must outlive it.
  ImageBatches(ImagesOfLoader& images, const LoaderCore& loader, std::uint64_t epoch);

  /// Where the shape of the images is not known yet, reads the first one for it. Throws as fill().
  void open(std::size_t slot, std::span<const std::uint64_t> indices) override;

  /// Throws UsageError for an image that is not [C, H, W] on the CPU or not like the others and for a label outside the
  /// classes, EnvironmentError for too many bad samples, and whatever the data set or the transform throws.
  void fill(std::size_t slot, std::uint64_t place, std::uint64_t index) override;

 private:
  struct Slot {
    ImageShape shape = {};
    std::byte* images = nullptr;  // of the batch; workers do without its tensors
    std::int64_t* labels = nullptr;
  };

  Batch finish(std::size_t slot, SampleRandom& random) override;
  ImageShape shape(std::uint64_t index);
  Sample get(std::uint64_t index, SampleRandom& random) const;
  std::int64_t read_and_store(std::uint64_t index, SampleRandom& random, const ImageShape& shape, void* image) const;
  std::int64_t read_in_place(std::uint64_t index, SampleRandom& random, const ImageShape& shape, void* image) const;

  ImagesOfLoader& images_;
  std::vector<Slot> slots_;
  std::vector<Batch> batches_;
};

}  // namespace detail

}  // namespace libtrain::data
