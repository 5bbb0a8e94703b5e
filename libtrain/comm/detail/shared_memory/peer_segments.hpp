#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include <libtrain/comm/detail/shared_memory/mapping.hpp>
#include <libtrain/comm/detail/shared_memory/peer_processes.hpp>
#include <libtrain/comm/detail/shared_memory/shared_state.hpp>

namespace libtrain::detail {

/// The segments of peers that this rank has mapped: each when it is needed first. Of those that have not been used for
/// longest, as freed ones are after a while, it forgets what exceeds a bound.
class PeerSegments {
 public:
  /// Refers to `processes`.
  PeerSegments(const PeerProcesses& processes, int world_size);

  /// Where a location of `rank` lies in this process's memory; valid until many other segments of that rank have been
  /// used. Throws EnvironmentError.
  std::byte* address(int rank, const Location& location);

 private:
  struct Entry {
    Mapping mapping;
    std::uint64_t last_use = 0;
  };
  using Entries = std::unordered_map<std::uint32_t, Entry>;  // by the segment's number

  Entry& map(int rank, const SegmentName& name);

  const PeerProcesses& processes_;
  std::vector<Entries> entries_;
  std::uint64_t uses_ = 0;
};

}  // namespace libtrain::detail
