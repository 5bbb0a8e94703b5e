#pragma once

#include <memory>
#include <string>

#include <libtrain/comm/detail/hierarchy/host_layout.hpp>
#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

struct HierarchyOptions {
  /// Whether this rank shares memory. If it is false on any rank, no rank does.
  bool share_memory = true;
  /// Identifies this process's host. If it is empty, host name, boot id and PID namespace do.
  std::string host = {};
};

/// Ranks on several hosts: the ranks of one host use shared memory, and hosts use the transport that connected all
/// ranks.
///
/// An all-reduce is a reduce-scatter inside each host, an all-reduce of each rank's slice with the ranks of the same
/// position on the other hosts, and an all-gather inside each host: every byte leaves a host once, and all ranks send
/// at the same time. If the hosts have different numbers of ranks, only the first rank of each communicates between
/// hosts. The other collectives, which are rare or small, use the plain transport.
class HierarchicalTransport : public HostTransport {
 public:
  /// Builds the hierarchy over `world`. Returns a SharedMemoryTransport if all ranks share one host, and `world` itself
  /// if no two do or memory cannot be shared; then the first rank of each host that cannot share logs the reason. All
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

  // Takes `world` if it succeeds.
  static std::unique_ptr<HostTransport> connect_parts(std::unique_ptr<HostTransport>& world,
                                                      const HierarchyOptions& options, const WaitPolicy& policy);

  bool is_host_leader() const { return local_->rank() == 0; }
  Deadline earliest_deadline(const WaitPolicy& policy);
  bool arrive_across(const Arrival& arrival, bool equal_here, const WaitPolicy& policy);
  void reduce_slices(void* output, std::size_t count, DataType type, ReduceOp op, const WaitPolicy& policy);
  void reduce_by_leaders(void* output, std::size_t count, DataType type, ReduceOp op, const WaitPolicy& policy);

  std::unique_ptr<HostTransport> world_;
  std::unique_ptr<HostTransport> local_;
  std::unique_ptr<HostTransport> across_;  ///< null if this rank does not communicate with other hosts
  HostLayout layout_;
  HierarchyOptions options_;
  std::string name_;
};

}  // namespace libtrain::detail
