#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/comm/detail/staged/staging_buffer.hpp>

namespace libtrain::detail {

/// Staging buffers that are reused: creating one costs far more than a copy. A buffer that has not been used for a few
/// thousand allocations is freed.
class StagingPool {
 public:
  StagingPool(std::shared_ptr<Communicator> host, const at::Device& device) : host_(std::move(host)), device_(device) {}

  /// A buffer of at least `elements` elements for exclusive use until the last copy of the pointer is destroyed, which
  /// may outlive the pool. One thread at a time may call it; any thread may release the pointer.
  std::shared_ptr<StagingBuffer> take(std::int64_t elements, at::ScalarType type);

 private:
  struct Slot {
    explicit Slot(std::unique_ptr<StagingBuffer> buffer) : buffer(std::move(buffer)) {}

    std::unique_ptr<StagingBuffer> buffer;
    std::atomic<bool> is_allocated = false;
    std::uint64_t last_allocation = 0;
  };

  static bool is_idle(const Slot& slot);
  void free_unused();

  std::shared_ptr<Communicator> host_;
  at::Device device_;
  std::vector<std::shared_ptr<Slot>> slots_;
  std::uint64_t allocations_ = 0;
};

}  // namespace libtrain::detail
