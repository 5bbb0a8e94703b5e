#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

class SharedMemoryGroup;
class StagedCollectives;

/// Ranks that are processes or threads of one host and access each other's memory.
///
/// Buffers from `allocate` are reduced in place, in one pass: each rank combines its slice of all ranks' buffers, in
/// rank order, and writes the result into all of them. Ordinary memory is copied through a staging area in chunks. Both
/// give the same bits. The shared memory has no name and does not use /dev/shm: the kernel frees it when its processes
/// have ended, even after a crash.
class SharedMemoryTransport : public HostTransport {
 public:
  /// Connects the ranks of `base`; all of them must call this. `base` is used to exchange a few bytes and not
  /// afterwards. If any rank cannot share memory, all throw EnvironmentError, which names the rank and the reason;
  /// `base` can still be used then.
  static std::unique_ptr<SharedMemoryTransport> connect(HostTransport& base, const WaitPolicy& policy);

  /// Keeps the transport that the launcher has connected, for this transport and those split from it: shared memory
  /// cannot end a job, and a library such as MPI must be notified of failed ranks. Call it before the first collective.
  void keep_base(std::shared_ptr<HostTransport> base) { base_ = std::move(base); }

  ~SharedMemoryTransport() override;

  int rank() const override;
  int world_size() const override;
  std::string_view name() const override { return "shared_memory"; }
  std::string describe() const override;

  bool arrive(const Arrival& arrival, const WaitPolicy& policy) override;
  void refuse_arrival(const std::string& reason) override;
  bool reduces(DataType /*type*/) const override { return true; }
  void all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                  const WaitPolicy& policy) override;
  void reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, int root,
              const WaitPolicy& policy) override;
  void broadcast(void* data, std::size_t bytes, int root, const WaitPolicy& policy) override;
  void all_gather(const void* input, void* output, std::size_t bytes, const WaitPolicy& policy) override;
  void reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                      const WaitPolicy& policy) override;
  void all_to_all(const void* input, void* output, std::size_t bytes, const WaitPolicy& policy) override;
  std::unique_ptr<HostTransport> split(int color, int key, const WaitPolicy& policy) override;

  /// Zero-filled memory, which may outlive this transport; null if the system has no more shared memory.
  std::shared_ptr<void> allocate(std::size_t bytes) override;
  void abort(const std::string& reason) noexcept override;
  void end_job(const std::string& reason, ExitCode code) noexcept override;

 private:
  explicit SharedMemoryTransport(std::unique_ptr<SharedMemoryGroup> group);

  void publish_buffers(const void* input, void* output, const WaitPolicy& policy);
  void close(const WaitPolicy& policy);
  void unpublish_buffers();
  bool all_inputs_hold(std::size_t bytes) const;
  bool all_outputs_hold(std::size_t bytes) const;
  bool output_holds(int rank, std::size_t bytes) const;
  const std::byte* input_of(int rank) const;
  std::byte* output_of(int rank) const;
  void reduce_to(std::optional<int> root, const void* input, void* output, std::size_t count, DataType type,
                 ReduceOp op, const WaitPolicy& policy);
  void reduce_slice(std::size_t count, DataType type, ReduceOp op, std::optional<int> root);

  std::shared_ptr<HostTransport> base_;  // may be null
  bool is_part_ = false;                 // split from the one that connected the ranks
  std::unique_ptr<SharedMemoryGroup> group_;
  std::unique_ptr<StagedCollectives> staged_;
  std::atomic<bool> has_warned_ = false;
  std::optional<Arrival> announced_;  // at an arrival whose collective has not started
  const void* input_ = nullptr;       // of the running collective
  void* output_ = nullptr;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
};

}  // namespace libtrain::detail
