#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/comm/detail/staged/staging_buffer.hpp>

namespace libtrain::detail {

/// Staging buffers that are lent and lent again: making one costs far more than a copy. One that has not been wanted
/// for a few thousand loans is given back to the machine.
class StagingPool {
 public:
  StagingPool(std::shared_ptr<Communicator> host, const at::Device& device) : host_(std::move(host)), device_(device) {}

  /// A buffer of at least `elements` elements for the caller alone, until the last copy of the pointer is gone, which
  /// may outlive the pool. One thread at a time may take; any may let go.
  std::shared_ptr<StagingBuffer> take(std::int64_t elements, at::ScalarType type);

 private:
  struct Slot {
    explicit Slot(std::unique_ptr<StagingBuffer> buffer) : buffer(std::move(buffer)) {}

    std::unique_ptr<StagingBuffer> buffer;
    std::atomic<bool> is_lent = false;
    std::uint64_t last_loan = 0;
  };

  static bool is_idle(const Slot& slot);
  void forget_unwanted();

  std::shared_ptr<Communicator> host_;
  at::Device device_;
  std::vector<std::shared_ptr<Slot>> slots_;
  std::uint64_t loans_ = 0;
};

}  // namespace libtrain::detail
