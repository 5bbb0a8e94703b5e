#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include <libtrain/base/file_descriptor.hpp>
#include <libtrain/comm/detail/shared_memory/mapping.hpp>

namespace libtrain::detail {

/// Identifies a segment for a peer that maps it: plain data in shared memory.
struct SegmentName {
  std::uint64_t inode = 0;  ///< to check that the opened file is this segment
  std::uint64_t bytes = 0;
  std::int32_t file = -1;    ///< descriptor in the owner's process
  std::uint32_t number = 0;  ///< assigned by the owner, never reused
};

/// Memory that peers can map: a file without a name, which the kernel removes with its last user, even after a crash.
/// All pages are allocated, so that an access cannot fail.
class Segment {
 public:
  /// At least `bytes` bytes, zeros. Throws EnvironmentError.
  Segment(std::size_t bytes, std::uint32_t number);

  std::byte* data() const { return mapping_.data(); }
  const SegmentName& name() const { return name_; }

  /// Frees the pages even if peers still map them; a peer that accesses them is killed.
  void discard() noexcept;

 private:
  FileDescriptor file_;
  SegmentName name_;
  Mapping mapping_;
};

/// Maps a segment that belongs to another `process` (or to this one). Throws EnvironmentError if it cannot be opened,
/// or is a different file.
Mapping map_segment(pid_t process, const SegmentName& name);

}  // namespace libtrain::detail
