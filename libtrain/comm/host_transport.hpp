#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/comm/data_type.hpp>

namespace libtrain {

/// How long a transport may wait for its peers, and how eagerly.
struct Patience {
  Deadline deadline;
  /// Threads that have nothing to do until this operation ends: while there are any, waiting may burn the processor;
  /// while there are none, the processor belongs to whoever computes.
  const std::atomic<int>* waiters = nullptr;

  bool someone_waits() const { return waiters == nullptr || waiters->load(std::memory_order_relaxed) > 0; }
};

/// Blocking collectives over host memory: what a CPU backend implements. HostCommunicator adds tensors, asynchrony,
/// deadlines and the memory of failures.
///
/// All methods but `abort` are called by one thread at a time, in the same order on every rank. Pointers may be null
/// where there is nothing to move. Every method throws CommunicationError when it finds a peer lost or the deadline
/// passed; after that only `abort` and the destructor may be called. A transport over a library that cannot be
/// interrupted may stay in a call for ever: those who wait for the result have a bound of their own.
class HostTransport {
 public:
  virtual ~HostTransport() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual std::string_view name() const = 0;

  /// Returns when every rank has come here; true where all brought the same fingerprint. Every collective below is
  /// preceded by one, so that a mismatched call ends in an error and a missing rank is noticed before data moves.
  virtual bool arrive(std::uint64_t fingerprint, const Patience& patience) = 0;

  /// Combines `count` elements of all ranks in place. Never called with a 16-bit type, nor with the average of
  /// integers.
  virtual void all_reduce(void* data, std::size_t count, DataType type, ReduceOp op, const Patience& patience) = 0;

  /// Copies `bytes` bytes of `root` to all ranks.
  virtual void broadcast(void* data, std::size_t bytes, int root, const Patience& patience) = 0;

  /// Places each rank's `bytes` bytes one after another, in rank order, in every rank's `output`.
  virtual void all_gather(const void* input, void* output, std::size_t bytes, const Patience& patience) = 0;

  /// Combines the ranks' inputs of world_size * count elements and leaves the rank-th `count` of them in `output`.
  virtual void reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                              const Patience& patience) = 0;

  /// A transport among the ranks that gave the same `color`, ranked by (key, rank). All ranks must call it.
  virtual std::unique_ptr<HostTransport> split(int color, int key, const Patience& patience) = 0;

  /// Memory that this transport moves best; null to let the caller allocate.
  virtual std::shared_ptr<void> allocate(std::size_t /*bytes*/) { return nullptr; }

  /// Makes this rank's and, where the transport can, its peers' pending and later calls fail with `reason`.
  /// Any thread, at any time.
  virtual void abort(const std::string& reason) noexcept = 0;

  /// Ends the whole job, as far as the transport can reach it, with `code` as its exit code. Any thread, at any time.
  virtual void end_job(const std::string& reason, ExitCode /*code*/) noexcept { abort(reason); }
};

}  // namespace libtrain
