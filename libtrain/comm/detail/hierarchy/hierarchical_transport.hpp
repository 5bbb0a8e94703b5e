#pragma once

#include <memory>
#include <string>

#include <libtrain/comm/detail/hierarchy/host_layout.hpp>
#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

struct HierarchyOptions {
  /// Whether this rank wants to share memory. All must, or none does.
  bool share_memory = true;
  /// Identifies this process's host; empty: host name, boot and process namespace, as the system says.
  std::string host = {};
};

/// Ranks on several hosts: those of one host talk through shared memory, and hosts over the transport that connected
/// the ranks in the first place.
///
/// An all-reduce is a reduce-scatter inside each host, an all-reduce of each rank's slice with the ranks of the same
/// position on the other hosts, and an all-gather inside each host: every byte leaves a host once, and all ranks send
/// at the same time. Where the hosts have different numbers of ranks, the first rank of each speaks for its host. The
/// other collectives use the plain transport, which is right for what is rare or small.
class HierarchicalTransport : public HostTransport {
 public:
  /// Builds the hierarchy over `world`. Returns a SharedMemoryTransport where all ranks share one host, and `world`
  /// itself where no two do or memory cannot be shared; then the first rank of each host that cannot logs why. All
  /// ranks must call it.
  static std::unique_ptr<HostTransport> connect(std::unique_ptr<HostTransport> world, const HierarchyOptions& options,
                                                const WaitPolicy& policy);

  ~HierarchicalTransport() override;

  int rank() const override { return world_->rank(); }
  int world_size() const override { return world_->world_size(); }
  std::string_view name() const override { return name_; }
  std::string describe() const override;
  bool interruptible() const override { return world_->interruptible(); }

  bool arrive(const Arrival& arrival, const WaitPolicy& policy) override;
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
  std::shared_ptr<void> allocate(std::size_t bytes) override { return local_->allocate(bytes); }
  void abort(const std::string& reason) noexcept override;
  void end_job(const std::string& reason, ExitCode code) noexcept override;

 private:
  HierarchicalTransport(std::unique_ptr<HostTransport> world, std::unique_ptr<HostTransport> local,
                        std::unique_ptr<HostTransport> across, HostLayout layout, HierarchyOptions options);

  bool speaks_for_host() const { return local_->rank() == 0; }
  Deadline earliest_deadline(const WaitPolicy& policy);
  bool arrive_across(const Arrival& arrival, bool equal_here, const WaitPolicy& policy);
  void reduce_slices(void* output, std::size_t count, DataType type, ReduceOp op, const WaitPolicy& policy);
  void reduce_by_leaders(void* output, std::size_t count, DataType type, ReduceOp op, const WaitPolicy& policy);

  std::unique_ptr<HostTransport> world_;
  std::unique_ptr<HostTransport> local_;
  std::unique_ptr<HostTransport> across_;  ///< null where this rank does not talk to other hosts
  HostLayout layout_;
  HierarchyOptions options_;
  std::string name_;
};

}  // namespace libtrain::detail
