#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

/// What one rank shows the others between two meetings.
struct ThreadSlot {
  std::uint64_t fingerprint = 0;
  const void* input = nullptr;
  void* output = nullptr;
  int color = 0;
  int key = 0;
};

/// The shared side of a group of threads: a board with one slot a rank, and a barrier.
///
/// A rank writes only its own slot, before a meeting, and reads the others' only between that meeting and the next.
class ThreadGroup {
 public:
  explicit ThreadGroup(int world_size);

  int world_size() const { return static_cast<int>(slots_.size()); }

  ThreadSlot& slot(int rank) { return slots_[static_cast<std::size_t>(rank)]; }

  /// Returns when all ranks have come. Throws CommunicationError, naming the ranks that did not, at the deadline; or
  /// the reason when somebody aborted.
  void meet(int rank, const Deadline& deadline);

  void abort(const std::string& reason) noexcept;

  /// The one group for `color`, made by whoever asks first; `members` must all ask.
  std::shared_ptr<ThreadGroup> subgroup(int color, int members);

 private:
  void fail(const std::string& reason);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ThreadSlot> slots_;
  std::vector<bool> here_;
  int arrived_ = 0;
  std::uint64_t meeting_ = 0;
  std::string failure_;

  struct Subgroup {
    std::shared_ptr<ThreadGroup> group;
    int taken = 0;
  };
  std::map<int, Subgroup> subgroups_;
};

}  // namespace libtrain::detail
