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

/// The shared side of a group of threads: a board with one slot a rank, and sections that all ranks enter and leave
/// together.
///
/// A rank writes only its own slot, before a section, and reads the others' only inside it.
class ThreadGroup {
 public:
  explicit ThreadGroup(int world_size);

  int world_size() const { return static_cast<int>(slots_.size()); }

  ThreadSlot& slot(int rank) { return slots_[static_cast<std::size_t>(rank)]; }

  /// A section in which every rank may touch the memory that the others have shown. Its beginning and its end are
  /// meetings of all ranks. Both throw CommunicationError: at the deadline, naming the ranks that did not arrive, or
  /// the reason when a rank aborted; `close` only when no rank is in the section any more, so that no rank frees memory
  /// that a peer still reads.
  class Section {
   public:
    Section(ThreadGroup& group, int rank, const Deadline& deadline) : group_(group), rank_(rank) {
      group_.meet(rank, deadline, Meeting::opening);
    }
    /// After an exception inside: the peers may still read what this rank has shown.
    ~Section() {
      if (!closed_) group_.leave_as_the_last();
    }
    Section(const Section&) = delete;  // one leaving for one entering
    Section& operator=(const Section&) = delete;

    void close(const Deadline& deadline) {
      closed_ = true;
      group_.leave();
      group_.meet(rank_, deadline, Meeting::closing);
    }

   private:
    ThreadGroup& group_;
    int rank_;
    bool closed_ = false;
  };

  void abort(const std::string& reason) noexcept;

  /// The one group for `color`, made by the rank that asks first; `members` must all ask.
  std::shared_ptr<ThreadGroup> subgroup(int color, int members);

 private:
  enum class Meeting { opening, closing };

  void meet(int rank, const Deadline& deadline, Meeting kind);
  void leave() noexcept;
  void leave_as_the_last() noexcept;
  void fail(const std::string& reason);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ThreadSlot> slots_;
  std::vector<bool> here_;
  int arrived_ = 0;
  std::uint64_t meeting_ = 0;
  int inside_ = 0;  // ranks in the section
  std::string failure_;

  struct Subgroup {
    std::shared_ptr<ThreadGroup> group;
    int taken = 0;
  };
  std::map<int, Subgroup> subgroups_;
};

}  // namespace libtrain::detail
