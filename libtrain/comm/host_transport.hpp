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

/// How long a transport may wait for its peers, and whether it may spin.
struct WaitPolicy {
  Deadline deadline;
  /// Number of threads that are blocked on this operation. If it is above 0, the wait may spin; if it is 0, the wait
  /// must leave the core to threads that compute.
  const std::atomic<int>* waiters = nullptr;

  bool has_waiters() const { return waiters == nullptr || waiters->load(std::memory_order_relaxed) > 0; }
};

/// What a rank announces about the collective that it enters.
struct Arrival {
  std::uint64_t fingerprint = 0;
  const void* input = nullptr;  ///< the `input` of the collective, or null
  void* output = nullptr;       ///< its `output` or `data`, or null
};

class HostTransport;

namespace detail {

/// "rank 3", "ranks 3 and 5", "ranks 3, 5 to 9 and 12": short for any number of ranks.
std::string ranks_in_words(std::vector<int> ranks);

/// "rank 3 did not arrive before the deadline. Check for ..."
std::string missing_ranks(std::vector<int> ranks);

/// Equal texts together, each with its ranks, in the order of their first ranks: element r of `texts` is that of rank
/// r.
std::vector<std::pair<std::string, std::vector<int>>> group_ranks(const std::vector<std::string>& texts);

/// Whether all ranks have the same text.
bool all_equal(const std::vector<std::string>& texts);

/// An arrival before collectives that no user has called, such as those that build one transport over another. Throws
/// CommunicationError if a rank arrives for another call.
void barrier(HostTransport& transport, const WaitPolicy& policy);

}  // namespace detail

/// Blocking collectives over host memory: the interface that a CPU backend implements. communicate_over() (backend.hpp)
/// adds tensors, asynchrony, deadlines, and repeats the first failure in later calls.
///
/// All methods except `abort` and `allocate` are called by one thread at a time, in the same order on every rank.
/// Pointers may be null if there is nothing to move. Every method throws CommunicationError when a peer is lost or the
/// deadline passes; after that only `abort`, `end_job` and the destructor are called. A transport over a library that
/// cannot be interrupted may stay in a call for ever: threads that wait for the result have their own timeout.
class HostTransport {
 public:
  virtual ~HostTransport() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual std::string_view name() const = 0;

  /// One line for the log of rank 0: "4 ranks over tcp".
  virtual std::string describe() const;

  /// Whether every call ends soon after its deadline or `abort`. If not (a communication library that blocks), only the
  /// communication thread calls it.
  virtual bool interruptible() const { return true; }

  /// Returns when every rank has called it; true if all passed the same fingerprint, a hash of the call ("all_reduce of
  /// 1000 float32 (average)"), its label and its number. It precedes every collective below, so that a missing rank is
  /// noticed before data moves, and mismatched calls are an error: after false, the caller calls all_gather without
  /// another arrival to exchange the descriptions, and throws who called what. If ranks do not come before the
  /// deadline, it throws detail::missing_ranks() with their name_of() on every rank that has come. The first deadline
  /// of any rank ends the call on all ranks. `arrival` contains the buffers of the following collective, for transports
  /// whose peers access them directly.
  virtual bool arrive(const Arrival& arrival, const WaitPolicy& policy) = 0;

  /// Called instead of `arrive`: makes the peers that wait in the same arrival throw CommunicationError with `reason`,
  /// which does not name this rank, because it is not this rank that has failed. The default, abort(), names it: a
  /// transport that a hierarchical one may use overrides it.
  virtual void refuse_arrival(const std::string& reason) { abort(reason); }

  /// Whether reductions support this type. If not, the caller widens 16-bit types to float32 first.
  virtual bool reduces(DataType type) const { return size_of(type) != 2; }

  /// Combines `count` elements of all ranks, with the same bits on every rank. `input` and `output` are equal (in
  /// place) or do not overlap; `input` keeps its values then. Never called with the average of integers.
  virtual void all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                          const WaitPolicy& policy) = 0;

  /// The same, but only `root` gets the result: the other ranks' `output` is null.
  virtual void reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, int root,
                      const WaitPolicy& policy) = 0;

  /// Copies `bytes` bytes of `root` to all ranks.
  virtual void broadcast(void* data, std::size_t bytes, int root, const WaitPolicy& policy) = 0;

  /// Concatenates each rank's `bytes` bytes in rank order in every rank's `output`. `input` may be the rank-th part of
  /// `output`.
  virtual void all_gather(const void* input, void* output, std::size_t bytes, const WaitPolicy& policy) = 0;

  /// Combines the ranks' inputs of world_size * count elements and stores the rank-th `count` of them in `output`,
  /// which may be the rank-th part of `input`.
  virtual void reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                              const WaitPolicy& policy) = 0;

  /// Sends the r-th `bytes` bytes of `input` to rank r, which stores them as this rank's part of its `output`. The two
  /// do not overlap.
  virtual void all_to_all(const void* input, void* output, std::size_t bytes, const WaitPolicy& policy) = 0;

  /// A transport of the ranks that passed the same `color`, ordered by (key, rank). All ranks must call it.
  virtual std::unique_ptr<HostTransport> split(int color, int key, const WaitPolicy& policy) = 0;

  /// Memory that this transport moves fastest; null to let the caller allocate. Any thread may call it; not collective.
  virtual std::shared_ptr<void> allocate(std::size_t /*bytes*/) { return nullptr; }

  /// Makes this rank's pending and later calls fail with `reason` and, if the transport supports that, its peers' with
  /// "rank N failed: " and `reason`. The first failure is kept. Any thread may call it at any time.
  virtual void abort(const std::string& reason) noexcept = 0;

  /// Ends the whole job with exit code `code`, as far as the transport can. Any thread may call it at any time.
  virtual void end_job(const std::string& reason, ExitCode /*code*/) noexcept { abort(reason); }

  /// Sets the numbers that messages use for the ranks if this transport is part of a larger group: element r is the
  /// number of rank r in that group. Call it before the first collective.
  void name_ranks(std::vector<int> names) { names_ = std::move(names); }
  int name_of(int rank) const { return names_.empty() ? rank : names_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<int> names_;
};

}  // namespace libtrain
