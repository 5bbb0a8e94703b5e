#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <libtrain/comm/detail/shared_memory/segment.hpp>

namespace libtrain::detail {

inline constexpr int kMaxRanks = 256;

/// Where a buffer lies, for peers.
struct Location {
  SegmentName segment = {};
  std::uint64_t offset = 0;

  /// Whether `count` bytes from here on lie in the segment; never for memory that is not shared.
  bool holds(std::size_t count) const { return offset < segment.bytes && count <= segment.bytes - offset; }
};

/// Why the ranks meet. They must all arrive for the same reason.
enum class MeetingKind : std::uint32_t { arrival, opening, chunk, closing };

/// What a rank brings to a meeting.
struct Showing {
  MeetingKind kind = MeetingKind::closing;
  std::uint64_t fingerprint = 0;
  Location input = {};
  Location output = {};
};

/// A rank's place at every second meeting. `arrived` is written last.
struct alignas(128) Slot {
  std::atomic<std::uint64_t> arrived = 0;    ///< the number of the meeting that the rank has arrived at
  std::atomic<std::int32_t> processor = -1;  ///< on which it ran then
  Showing showing;
};

/// What all ranks of a group see: the slots of every rank, a futex, and the reason of the first failure. It lies in
/// shared memory, so it holds no pointers, and its atomics must be free of locks.
///
/// - A rank writes only its own slots and its own `left`; for meeting n its slot n % 2. So what it showed for meeting n
///   stays readable until it arrives at n + 2, that is until every rank has arrived at n + 1.
/// - `wake_count` changes when the last rank has arrived at a meeting while another sleeps, when a rank leaves, and at
/// a
///   failure.
struct SharedState {
  enum class Failure : std::uint32_t { none, being_written, written };
  static constexpr std::size_t kLongestReason = 2048;

  std::uint64_t nonce = 0;  ///< random: two groups never have the same

  alignas(128) std::atomic<std::uint32_t> wake_count = 0;
  std::atomic<std::uint32_t> sleepers = 0;

  alignas(128) std::atomic<Failure> failure = Failure::none;
  std::array<char, kLongestReason> reason{};

  alignas(128) std::array<std::atomic<bool>, kMaxRanks> left{};  ///< destroyed their side in good order
  std::array<std::array<Slot, 2>, kMaxRanks> slots;

  Slot& slot(int rank, std::uint64_t meeting) { return slots[static_cast<std::size_t>(rank)][meeting % 2]; }
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

}  // namespace libtrain::detail
