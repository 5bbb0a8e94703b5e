#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <libtrain/comm/detail/shared_memory/segment.hpp>

namespace libtrain::detail {

inline constexpr int kMaxRanks = 256;

/// The location of a buffer, for peers.
struct Location {
  SegmentName segment = {};
  std::uint64_t offset = 0;
  std::uint64_t owned_segments = 0;  ///< number of segments that the owner has

  /// Whether the segment has `count` bytes from the offset on; false for memory that is not shared.
  bool holds(std::size_t count) const { return offset < segment.bytes && count <= segment.bytes - offset; }
};

/// The purpose of a barrier. It must be the same on all ranks.
enum class BarrierPhase : std::uint32_t { arrival, opening, chunk, closing };

/// What a rank publishes to its peers at a barrier.
struct PublishedBuffers {
  BarrierPhase phase = BarrierPhase::closing;
  std::uint64_t fingerprint = 0;
  Location input = {};
  Location output = {};
};

/// A rank's state for every second barrier. `arrived` is written last.
struct alignas(128) Slot {
  std::atomic<std::uint64_t> arrived = 0;    ///< the number of the barrier that the rank has arrived at
  std::atomic<std::int32_t> processor = -1;  ///< the core it ran on then
  PublishedBuffers published;
};

/// The shared state of a group: the slots of every rank, a futex, and the reason of the first failure. It is in shared
/// memory, so it contains no pointers, and its atomics must be lock-free.
///
/// - A rank writes only its own slots and its own `closed`; for barrier n its slot n % 2. So what it published at
///   barrier n stays readable until it arrives at n + 2, that is until every rank has arrived at n + 1.
/// - `wake_count` changes when the last rank arrives at a barrier while another sleeps, when a rank destroys its group,
///   and at a failure.
struct SharedState {
  enum class Failure : std::uint32_t { none, being_written, written };
  static constexpr std::size_t kMaxReason = 2048;

  std::uint64_t nonce = 0;  ///< random, different for every group

  alignas(128) std::atomic<std::uint32_t> wake_count = 0;
  std::atomic<std::uint32_t> sleepers = 0;

  alignas(128) std::atomic<Failure> failure = Failure::none;
  std::array<char, kMaxReason> reason{};

  alignas(128) std::array<std::atomic<bool>, kMaxRanks> closed{};  ///< ranks that destroyed their group
  std::array<std::array<Slot, 2>, kMaxRanks> slots;

  Slot& slot(int rank, std::uint64_t barrier) { return slots[static_cast<std::size_t>(rank)][barrier % 2]; }
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

}  // namespace libtrain::detail
