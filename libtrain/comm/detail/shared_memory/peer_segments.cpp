#include <libtrain/comm/detail/shared_memory/peer_segments.hpp>

#include <algorithm>

#include <libtrain/comm/detail/shared_memory/segment.hpp>

namespace libtrain::detail {

namespace {

// Up to this number of mapped segments of a peer, none is unmapped.
constexpr std::size_t kMinMappedSegments = 256;

}  // namespace

PeerSegments::PeerSegments(const PeerProcesses& processes, int world_size)
    : processes_(processes), entries_(static_cast<std::size_t>(world_size)) {}

std::byte* PeerSegments::address(int rank, const Location& location) {
  auto& entries = entries_[static_cast<std::size_t>(rank)];
  const auto found = entries.find(location.segment.number);
  auto& entry = found != entries.end() ? found->second : map(rank, location);
  entry.last_use = ++uses_;
  return entry.mapping.data() + location.offset;
}

PeerSegments::Entry& PeerSegments::map(int rank, const Location& location) {
  auto& entries = entries_[static_cast<std::size_t>(rank)];
  // More than the peer has: in each round it may use short-lived segments beside the others, and those would displace
  // the ones that are needed again.
  const auto limit = std::max<std::size_t>(kMinMappedSegments, location.owned_segments + location.owned_segments / 4);
  while (entries.size() >= limit) {
    entries.erase(std::ranges::min_element(entries, {}, [](const auto& entry) { return entry.second.last_use; }));
  }
  const auto& segment = location.segment;
  ++times_mapped_;
  return entries[segment.number] = Entry{.mapping = map_segment(processes_.of(rank), segment)};
}

}  // namespace libtrain::detail
