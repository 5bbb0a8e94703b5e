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

/// The buffers that a rank has allocated, each in a segment of its own. Any thread may call any method.
///
/// A buffer is exposed from the moment it is shown to peers until all ranks have come to the meeting that ends its use.
/// When one is freed, its pages go back to the machine at once, unless it is exposed: after a failure a peer may still
/// touch it, and the pages stay until that peer unmaps them.
class SegmentPool : public std::enable_shared_from_this<SegmentPool> {
 public:
  /// Zeros; the memory keeps the pool alive. Throws EnvironmentError.
  std::shared_ptr<void> allocate(std::size_t bytes);

  struct Locations {
    Location input;
    Location output;
  };

  /// Where the two lie; nowhere when not in this pool. These buffers, and no others, are exposed from now on.
  Locations expose(const void* input, const void* output);

  /// Ends the exposure.
  void conceal();

 private:
  using Buffers = std::map<const std::byte*, Segment>;  // by where they begin

  Buffers::const_iterator find(const void* data) const;
  void free(const std::byte* data) noexcept;

  std::mutex mutex_;
  Buffers buffers_;
  std::array<const std::byte*, 2> exposed_{};
  std::uint32_t created_ = 0;
};

}  // namespace libtrain::detail
