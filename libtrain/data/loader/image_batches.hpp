#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <libtrain/data/batch.hpp>
#include <libtrain/data/dataset.hpp>
#include <libtrain/data/loader/batch_memory.hpp>
#include <libtrain/data/loader/batch_mixing.hpp>
#include <libtrain/data/loader/batch_work.hpp>
#include <libtrain/data/loader/device_copy.hpp>
#include <libtrain/data/loader/sample_reader.hpp>
#include <libtrain/data/sampler.hpp>

namespace libtrain::data::detail {

/// What the epochs of a loader have in common. All must outlive them.
struct ImageBatchParts {
  const Sampler& sampler;
  SampleReader& reader;
  BatchMemory& memory;
  const DeviceCopy* device = nullptr;  ///< null: batches stay on the host
  std::optional<BatchMixing> mixing = {};
  std::uint64_t seed = 0;
};

/// Makes the batches of one epoch from a position on: see BatchEngine.
class ImageBatches : public BatchWork {
 public:
  ImageBatches(const ImageBatchParts& parts, std::uint64_t epoch, std::uint64_t from, std::size_t slots)
      : parts_(parts), epoch_(epoch), from_(from), order_(parts.sampler.order(epoch)), slots_(slots) {}

  std::uint64_t open(std::uint64_t batch, std::size_t slot) override;
  void fill(std::uint64_t batch, std::size_t slot, std::uint64_t sample) override;
  void close(std::uint64_t batch, std::size_t slot) override;

  /// The finished batch of that slot, on its device.
  Batch take(std::size_t slot);

  /// The samples of all batches, in their order.
  std::vector<std::uint64_t> indices() const;

 private:
  struct Slot {
    std::vector<std::uint64_t> indices = {};
    ImageShape shape = {};
    Batch batch = {};
    std::byte* images = nullptr;  // of the batch; workers do without its tensors
    std::int64_t* labels = nullptr;
    std::unique_ptr<DeviceCopy::Transfer> transfer = {};
  };

  const ImageBatchParts parts_;
  const std::uint64_t epoch_;
  const std::uint64_t from_;
  const EpochOrder order_;
  std::vector<Slot> slots_;
};

}  // namespace libtrain::data::detail
