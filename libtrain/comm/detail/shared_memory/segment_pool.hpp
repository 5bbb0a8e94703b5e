#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include <libtrain/comm/detail/shared_memory/segment.hpp>
#include <libtrain/comm/detail/shared_memory/shared_state.hpp>

namespace libtrain::detail {

/// The buffers that a rank has allocated, each in its own segment. Any thread may call any method.
///
/// A buffer is published from the moment when peers get its location until all ranks have arrived at the barrier that
/// ends its use. When a buffer is freed, its pages are returned to the system at once, unless it is published: after a
/// failure a peer may still access it, and the pages stay until that peer unmaps them.
class SegmentPool : public std::enable_shared_from_this<SegmentPool> {
 public:
  /// Zero-filled memory, which keeps the pool alive. Throws EnvironmentError.
  std::shared_ptr<void> allocate(std::size_t bytes);

  struct Locations {
    Location input;
    Location output;
  };

  /// The locations of the two; empty for memory outside this pool. From now on, only these buffers are published.
  Locations publish(const void* input, const void* output);

  /// From now on, no buffer is published.
  void unpublish();

 private:
  using Buffers = std::map<const std::byte*, Segment>;  // by their addresses

  Buffers::const_iterator find(const void* data) const;
  void free(const std::byte* data) noexcept;

  std::mutex mutex_;
  Buffers buffers_;
  std::array<const std::byte*, 2> published_{};
  std::uint32_t created_ = 0;
};

}  // namespace libtrain::detail
