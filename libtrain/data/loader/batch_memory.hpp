#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include <libtrain/data/batch.hpp>
#include <libtrain/data/dataset.hpp>

namespace libtrain::data::detail {

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

}  // namespace libtrain::data::detail
