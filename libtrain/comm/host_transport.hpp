#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/numeric/data_type.hpp>

namespace libtrain {

/// How long a transport may wait for its peers, and how eagerly.
struct WaitPolicy {
  Deadline deadline;
  /// Threads that have nothing to do until this operation ends: while there are any, waiting may burn the processor;
  /// while there are none, the processor belongs to threads that compute.
  const std::atomic<int>* waiters = nullptr;

  bool has_waiters() const { return waiters == nullptr || waiters->load(std::memory_order_relaxed) > 0; }
};

/// What a rank shows of the collective it has come for.
struct Arrival {
  std::uint64_t fingerprint = 0;
  const void* input = nullptr;  ///< what it will pass as `input`, or null
  void* output = nullptr;       ///< what it will pass as `output` or `data`, or null
};

class HostTransport;

namespace detail {

/// "rank 3", "ranks 3 and 5", "ranks 3, 5 to 9 and 12": short for any number of ranks.
std::string ranks_in_words(std::vector<int> ranks);

/// "rank 3 did not arrive before the deadline: stopped, unreachable or far behind."
std::string missing_ranks(std::vector<int> ranks);

/// An arrival for collectives that no user has called, such as those that build one transport over another. Throws
/// CommunicationError where a rank came for something else.
void meet(HostTransport& transport, const WaitPolicy& policy);

}  // namespace detail

/// Blocking collectives over host memory: what a CPU backend implements. communicate_over() (backend.hpp) adds
/// tensors, asynchrony, deadlines and the memory of failures.
///
/// All methods but `abort` and `allocate` are called by one thread at a time, in the same order on every rank. Pointers
/// may be null where there is nothing to move. Every method throws CommunicationError when it finds a peer lost or the
/// deadline passed; after that only `abort` and the destructor may be called. A transport over a library that cannot be
/// interrupted may stay in a call for ever: those who wait for the result have a bound of their own.
class HostTransport {
 public:
  virtual ~HostTransport() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual std::string_view name() const = 0;

  /// One line for the log of rank 0: "4 ranks over tcp".
  virtual std::string describe() const;

  /// Whether every call ends soon after its deadline or `abort`. Where not (a foreign library that blocks), only the
  /// communication thread may call it.
  virtual bool interruptible() const { return true; }

  /// Returns when every rank has come here; true where all brought the same fingerprint, a hash of what the call is
  /// ("all_reduce of 1000 float32 (average)"), what it is for, and its number. Every collective below is preceded by
  /// one, so that a missing rank is noticed before data moves, and a mismatched call ends in an error: where
  /// fingerprints differ, the ranks exchange the descriptions, and all throw who called what. The first deadline of any
  /// rank ends the call for all. `arrival` shows the buffers of the collective that follows, for transports whose peers
  /// look into them.
  virtual bool arrive(const Arrival& arrival, const WaitPolicy& policy) = 0;

  /// Instead of `arrive`: makes the peers that wait in the same arrival throw CommunicationError with `reason` as it
  /// is, for it is not this rank that has failed.
  virtual void refuse_arrival(const std::string& reason) { abort(reason); }

  /// Whether reductions take this type as it is. Where not, the caller widens 16-bit types to float32 first.
  virtual bool reduces(DataType type) const { return size_of(type) != 2; }

  /// Combines `count` elements of all ranks, with the same bits on every rank. `input` and `output` are equal (in
  /// place) or do not overlap; `input` keeps its values then. Never called with the average of integers.
  virtual void all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                          const WaitPolicy& policy) = 0;

  /// The same where only `root` wants the result: the others' `output` is null.
  virtual void reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, int root,
                      const WaitPolicy& policy) = 0;

  /// Copies `bytes` bytes of `root` to all ranks.
  virtual void broadcast(void* data, std::size_t bytes, int root, const WaitPolicy& policy) = 0;

  /// Places each rank's `bytes` bytes one after another, in rank order, in every rank's `output`. `input` may
  /// be the rank-th part of `output`.
  virtual void all_gather(const void* input, void* output, std::size_t bytes, const WaitPolicy& policy) = 0;

  /// Combines the ranks' inputs of world_size * count elements and leaves the rank-th `count` of them in `output`,
  /// which may be the rank-th part of `input`.
  virtual void reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                              const WaitPolicy& policy) = 0;

  /// Sends the r-th `bytes` bytes of `input` to rank r, whose `output` holds them as the part of this rank. The two do
  /// not overlap.
  virtual void all_to_all(const void* input, void* output, std::size_t bytes, const WaitPolicy& policy) = 0;

  /// A transport among the ranks that gave the same `color`, ranked by (key, rank). All ranks must call it.
  virtual std::unique_ptr<HostTransport> split(int color, int key, const WaitPolicy& policy) = 0;

  /// Memory that this transport moves best; null to let the caller allocate. Any thread; not collective.
  virtual std::shared_ptr<void> allocate(std::size_t /*bytes*/) { return nullptr; }

  /// Makes this rank's pending and later calls fail with `reason` and, where the transport can, its peers' with
  /// "rank N failed: " and `reason`. The first failure stays. Any thread, at any time.
  virtual void abort(const std::string& reason) noexcept = 0;

  /// Ends the whole job, as far as the transport can reach it, with `code` as its exit code. Any thread, at any time.
  virtual void end_job(const std::string& reason, ExitCode /*code*/) noexcept { abort(reason); }

  /// What the ranks are called in messages, where this transport is a part of a group that the user knows: element r is
  /// the number of rank r there. Before the first collective.
  void name_ranks(std::vector<int> names) { names_ = std::move(names); }
  int name_of(int rank) const { return names_.empty() ? rank : names_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<int> names_;
};

}  // namespace libtrain
