#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

class ThreadGroup;

/// Ranks that are threads of one process: peers read and write each other's buffers directly. Sums are taken in rank
/// order, so results are bit-equal from run to run.
class ThreadTransport : public HostTransport {
 public:
  ThreadTransport(std::shared_ptr<ThreadGroup> group, int rank);

  int rank() const override { return rank_; }
  int world_size() const override;
  std::string_view name() const override { return "threads"; }

  bool reduces(DataType /*type*/) const override { return true; }

  bool arrive(const Arrival& arrival, const WaitPolicy& policy) override;
  void refuse_arrival(const std::string& reason) override;
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
  void abort(const std::string& reason) noexcept override;

 private:
  /// Combines `count` elements of all ranks' inputs from byte `offset` on, in rank order.
  void reduce_part(std::size_t offset, std::span<void* const> outputs, std::size_t count, DataType type, ReduceOp op);

  std::shared_ptr<ThreadGroup> group_;
  int rank_;
  std::vector<const void*> inputs_;  // reused by the next reduction
  std::vector<void*> outputs_;
};

}  // namespace libtrain::detail
