#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include <libtrain/comm/detail/shared_memory/mapping.hpp>
#include <libtrain/comm/detail/shared_memory/peer_processes.hpp>
#include <libtrain/comm/detail/shared_memory/shared_state.hpp>

namespace libtrain::detail {

/// The mapped segments of peers. A segment is mapped when it is needed first. Peers do not report which segments they
/// have freed: before a rank maps a quarter more segments of a peer than that peer has, it unmaps the least
/// recently used ones. Segments in use are therefore mapped once, however many there are.
class PeerSegments {
 public:
  /// Refers to `processes`.
  PeerSegments(const PeerProcesses& processes, int world_size);

  /// The address of a location of `rank` in this process, valid until many other segments of that rank have been used.
  /// Throws EnvironmentError.
  std::byte* address(int rank, const Location& location);

  /// How many segments have been mapped so far, counting a segment again if it was mapped again.
  std::uint64_t times_mapped() const { return times_mapped_; }

 private:
  struct Entry {
    Mapping mapping;
    std::uint64_t last_use = 0;
  };
  using Entries = std::unordered_map<std::uint32_t, Entry>;  // by the segment's number

  Entry& map(int rank, const Location& location);

  const PeerProcesses& processes_;
  std::vector<Entries> entries_;
  std::uint64_t uses_ = 0;
  std::uint64_t times_mapped_ = 0;
};

}  // namespace libtrain::detail
