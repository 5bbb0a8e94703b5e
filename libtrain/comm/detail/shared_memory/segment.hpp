#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include <libtrain/base/file_descriptor.hpp>
#include <libtrain/comm/detail/shared_memory/mapping.hpp>

namespace libtrain::detail {

/// What a peer needs to map a segment: plain data that crosses process boundaries.
struct SegmentName {
  std::uint64_t inode = 0;  ///< tells whether the file found is the one that was meant
  std::uint64_t bytes = 0;
  std::int32_t file = -1;    ///< its number in the owner's process
  std::uint32_t number = 0;  ///< counted by the owner, never used again
};

/// Memory that peers can map, as a file without a name: nothing is left of it when its last user is gone, however that
/// came about. All of it has been granted, so that touching it cannot fail.
class Segment {
 public:
  /// At least `bytes` bytes, zeros. Throws EnvironmentError.
  Segment(std::size_t bytes, std::uint32_t number);

  std::byte* data() const { return mapping_.data(); }
  const SegmentName& name() const { return name_; }

  /// Gives the pages back to the machine although peers may still map them; touching those ends the peer.
  void discard() noexcept;

 private:
  FileDescriptor file_;
  SegmentName name_;
  Mapping mapping_;
};

/// Maps a segment that belongs to another `process` (or to this one). Throws EnvironmentError when it cannot be
/// reached, or is not the one that was meant.
Mapping map_segment(pid_t process, const SegmentName& name);

}  // namespace libtrain::detail
