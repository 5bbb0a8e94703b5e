#include <libtrain/comm/detail/shared_memory/peer_segments.hpp>

#include <algorithm>

#include <libtrain/comm/detail/shared_memory/segment.hpp>

namespace libtrain::detail {

namespace {

constexpr std::size_t kMaxOfOnePeer = 256;

}  // namespace

PeerSegments::PeerSegments(const PeerProcesses& processes, int world_size)
    : processes_(processes), entries_(static_cast<std::size_t>(world_size)) {}

std::byte* PeerSegments::address(int rank, const Location& location) {
  auto& entries = entries_[static_cast<std::size_t>(rank)];
  const auto found = entries.find(location.segment.number);
  auto& entry = found != entries.end() ? found->second : map(rank, location.segment);
  entry.last_use = ++uses_;
  return entry.mapping.data() + location.offset;
}

PeerSegments::Entry& PeerSegments::map(int rank, const SegmentName& name) {
  auto& entries = entries_[static_cast<std::size_t>(rank)];
  if (entries.size() == kMaxOfOnePeer) {
    entries.erase(std::ranges::min_element(entries, {}, [](const auto& entry) { return entry.second.last_use; }));
  }
  return entries[name.number] = Entry{.mapping = map_segment(processes_.of(rank), name)};
}

}  // namespace libtrain::detail
