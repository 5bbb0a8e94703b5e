#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <libtrain/comm/detail/shared_memory/barrier.hpp>
#include <libtrain/comm/detail/shared_memory/mapping.hpp>
#include <libtrain/comm/detail/shared_memory/peer_processes.hpp>
#include <libtrain/comm/detail/shared_memory/peer_segments.hpp>
#include <libtrain/comm/detail/shared_memory/segment.hpp>
#include <libtrain/comm/detail/shared_memory/segment_pool.hpp>
#include <libtrain/comm/detail/shared_memory/shared_state.hpp>
#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

/// One rank's side of a group of ranks that share memory.
class SharedMemoryGroup {
 public:
  /// Size of every rank's staging area.
  static constexpr std::size_t kStagingBytes = std::size_t{512} << 10;

  /// A group of `members`, ranks of `base` in the order of their new ranks, including this rank. All ranks of `base`
  /// call this at the same time, each with its own group. If any of them fails, all throw EnvironmentError.
  static std::unique_ptr<SharedMemoryGroup> connect(HostTransport& base, const std::vector<int>& members,
                                                    const WaitPolicy& policy);

  /// Notifies the peers.
  ~SharedMemoryGroup();
  SharedMemoryGroup(const SharedMemoryGroup&) = delete;  // its parts refer to each other
  SharedMemoryGroup& operator=(const SharedMemoryGroup&) = delete;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  Barrier& barrier() { return barrier_; }
  SegmentPool& pool() { return *pool_; }

  /// The address of a peer's location in this process. If the segment cannot be mapped, all ranks' barriers fail.
  std::byte* address(int rank, const Location& location);

  /// kStagingBytes of shared memory that belong to `rank`.
  std::byte* staging(int rank) const { return staging_[static_cast<std::size_t>(rank)].data(); }

 private:
  struct Member;  // exchanged between the ranks while they connect

  SharedMemoryGroup(std::span<const Member> members, int rank);

  static std::vector<Member> exchange(HostTransport& base, const Member& mine, const WaitPolicy& policy);

  int rank_;
  int world_size_;
  PeerProcesses processes_;
  Mapping state_;
  Barrier barrier_;
  std::shared_ptr<SegmentPool> pool_ = std::make_shared<SegmentPool>();
  PeerSegments segments_;
  std::vector<Mapping> staging_;
};

}  // namespace libtrain::detail
