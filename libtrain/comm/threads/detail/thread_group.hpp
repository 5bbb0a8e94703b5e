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

/// What one rank publishes to the others between two barriers.
struct ThreadSlot {
  std::uint64_t fingerprint = 0;
  const void* input = nullptr;
  void* output = nullptr;
  int color = 0;
  int key = 0;
};

/// The shared state of a group of threads: one slot per rank, and sections that all ranks enter and leave together.
///
/// A rank writes only its own slot, before a section, and reads the other slots only inside the section.
class ThreadGroup {
 public:
  explicit ThreadGroup(int world_size);

  int world_size() const { return static_cast<int>(slots_.size()); }

  ThreadSlot& slot(int rank) { return slots_[static_cast<std::size_t>(rank)]; }

  /// A section in which every rank may access the memory that the others have published. It begins and ends with a
  /// barrier of all ranks. Both throw CommunicationError: at the deadline, naming the ranks that did not arrive, or
  /// with the reason of an abort. `close` throws only after all ranks have left the section, so that no rank frees
  /// memory that a peer still reads.
  class Section {
   public:
    Section(ThreadGroup& group, int rank, const Deadline& deadline) : group_(group), rank_(rank) {
      group_.wait(rank, deadline, Phase::opening);
    }
    /// After an exception inside: waits, because the peers may still read what this rank has published.
    ~Section() {
      if (!closed_) group_.leave_as_the_last();
    }
    Section(const Section&) = delete;  // one leave() for one entry
    Section& operator=(const Section&) = delete;

    void close(const Deadline& deadline) {
      closed_ = true;
      group_.leave();
      group_.wait(rank_, deadline, Phase::closing);
    }

   private:
    ThreadGroup& group_;
    int rank_;
    bool closed_ = false;
  };

  void abort(const std::string& reason) noexcept;

  /// The group for `color`, created by the first rank that calls this; all `members` ranks must call it.
  std::shared_ptr<ThreadGroup> subgroup(int color, int members);

 private:
  enum class Phase { opening, closing };

  void wait(int rank, const Deadline& deadline, Phase phase);
  void leave() noexcept;
  void leave_as_the_last() noexcept;
  void fail(const std::string& reason);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ThreadSlot> slots_;
  std::vector<bool> has_arrived_;
  int arrived_ = 0;
  std::uint64_t generation_ = 0;  // of the barrier
  int inside_ = 0;                // ranks in the section
  std::string failure_;

  struct Subgroup {
    std::shared_ptr<ThreadGroup> group;
    int taken = 0;
  };
  std::map<int, Subgroup> subgroups_;
};

}  // namespace libtrain::detail
